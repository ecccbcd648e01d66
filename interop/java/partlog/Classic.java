package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;

/** The same of Kafka's ZooKeeper time, by the classes of 3.9: they are on a class path of their own. */
final class Classic {
    private static Classic loaded;

    private final Class<?> broker;
    private final Method assign;
    private final Random random;
    private final Method asScala;
    private final Method asScalaSet;
    private final Method toSet;
    private final Map<String, Method> elections = new java.util.HashMap<>();
    private final Object context;

    static void register(Map<String, Driver.Command> c) {
        c.put("loadClassic", a -> {
            loaded = new Classic(a.get("classpath").asText());
            return null;
        });
        c.put("staggered", a -> Placing.each(a, loaded::staggered));
        c.put("classicElections", a -> Placing.each(a, loaded::elections));
    }

    private Classic(String classpath) throws Exception {
        List<URL> jars = new ArrayList<>();
        for (String jar : classpath.split(File.pathSeparator)) jars.add(new File(jar).toURI().toURL());
        ClassLoader old = new URLClassLoader(jars.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        broker = old.loadClass("org.apache.kafka.admin.BrokerMetadata");
        Class<?> utils = old.loadClass("org.apache.kafka.admin.AdminUtils");
        assign = utils.getMethod("assignReplicasToBrokers", Collection.class, int.class, int.class, int.class, int.class);
        Field chance = utils.getDeclaredField("RAND");
        chance.setAccessible(true);
        random = (Random) chance.get(null);
        Class<?> converters = old.loadClass("scala.jdk.javaapi.CollectionConverters");
        asScala = converters.getMethod("asScala", List.class);
        asScalaSet = converters.getMethod("asScala", Set.class);
        toSet = old.loadClass("scala.collection.IterableOnceOps").getMethod("toSet");
        for (Method m : old.loadClass("kafka.controller.PartitionLeaderElectionAlgorithms").getMethods()) elections.put(m.getName(), m);
        context = old.loadClass("kafka.controller.ControllerContext").getConstructor().newInstance();
    }

    private JsonNode staggered(JsonNode in) throws Exception {
        List<Object> brokers = new ArrayList<>();
        for (JsonNode b : in.get("brokers")) {
            brokers.add(broker.getConstructor(int.class, Optional.class).newInstance(b.get("id").asInt(), Placing.rack(b)));
        }
        if (in.hasNonNull("seed")) random.setSeed(in.get("seed").asLong());
        try {
            int first = in.get("firstPartition").asInt();
            int partitions = in.get("partitions").asInt();
            Map<?, ?> found = (Map<?, ?>) assign.invoke(null, brokers, partitions, in.get("replicationFactor").asInt(),
                in.path("startIndex").asInt(-1), first);
            ArrayNode out = Driver.JSON.createArrayNode();
            for (int p = first; p < first + partitions; p++) out.add(Driver.JSON.valueToTree(found.get(p)));
            return out;
        } catch (InvocationTargetException e) {
            if (!e.getCause().getClass().getName().startsWith("org.apache.kafka.")) throw e;
            return Driver.JSON.nullNode();
        }
    }

    /** The four elections; null where nobody can lead. */
    private JsonNode elections(JsonNode in) throws Exception {
        Object assignment = seq(in.get("assignment"));
        Object isr = seq(in.get("isr"));
        Object live = set(in.get("live"));
        ObjectNode out = Driver.JSON.createObjectNode();
        put(out, "offline", "offlinePartitionLeaderElection", assignment, isr, live, in.get("uncleanAllowed").asBoolean(), context);
        put(out, "preferred", "preferredReplicaPartitionLeaderElection", assignment, isr, live);
        put(out, "reassign", "reassignPartitionLeaderElection", assignment, isr, live);
        put(out, "controlledShutdown", "controlledShutdownPartitionLeaderElection", assignment, isr, live, set(in.get("shuttingDown")));
        return out;
    }

    private void put(ObjectNode out, String name, String method, Object... args) throws Exception {
        Object leader = elections.get(method).invoke(null, args);
        if ((boolean) leader.getClass().getMethod("isEmpty").invoke(leader)) out.putNull(name);
        else out.put(name, (int) leader.getClass().getMethod("get").invoke(leader));
    }

    private Object seq(JsonNode n) throws Exception {
        return asScala.invoke(null, Placing.list(n));
    }

    private Object set(JsonNode n) throws Exception {
        return toSet.invoke(asScalaSet.invoke(null, new HashSet<>(Placing.list(n))));
    }
}
