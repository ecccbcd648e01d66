package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.kafka.common.DirectoryId;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.controller.Rule;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PartitionAssignment;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;
import org.apache.kafka.server.common.MetadataVersion;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

/** What the KRaft controller decides of replicas and leaders, many cases a command: each answer is a result or null for a refusal. */
final class Placing {
    private Placing() { }

    static void register(Map<String, Driver.Command> c) {
        c.put("striped", a -> each(a, Placing::striped));
        c.put("partitionChange", a -> each(a, Placing::change));
        c.put("rule", a -> each(a, Placing::rule));
    }

    interface Case {
        JsonNode answer(JsonNode in) throws Exception;
    }

    static ArrayNode each(JsonNode a, Case one) throws Exception {
        ArrayNode out = Driver.JSON.createArrayNode();
        for (JsonNode in : a.get("cases")) out.add(one.answer(in));
        return out;
    }

    private static JsonNode striped(JsonNode in) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (JsonNode b : in.get("brokers")) {
            brokers.add(new UsableBroker(b.get("id").asInt(), rack(b), b.path("fenced").asBoolean()));
        }
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int broker) {
                return DirectoryId.UNASSIGNED;
            }
        };
        try {
            PlacementSpec spec = new PlacementSpec(in.get("firstPartition").asInt(), in.get("partitions").asInt(), (short) in.get("replicationFactor").asInt());
            ArrayNode out = Driver.JSON.createArrayNode();
            for (PartitionAssignment p : new StripedReplicaPlacer(new Random(in.get("seed").asLong())).place(spec, cluster).assignments()) {
                out.add(Driver.JSON.valueToTree(p.replicas()));
            }
            return out;
        } catch (ApiException e) {
            return Driver.JSON.nullNode();
        }
    }

    static Optional<String> rack(JsonNode broker) {
        return Optional.of(broker.path("rack").asText()).filter(r -> !r.isEmpty());
    }

    /** One change of one partition, and the partition after it; null if the controller writes nothing. */
    private static JsonNode change(JsonNode in) {
        JsonNode p = in.get("before");
        int[] replicas = numbers(p.get("replicas"));
        Uuid[] directories = new Uuid[replicas.length];
        Arrays.fill(directories, DirectoryId.UNASSIGNED);
        PartitionRegistration before = new PartitionRegistration.Builder().setReplicas(replicas).setDirectories(directories)
            .setIsr(numbers(p.get("isr"))).setElr(numbers(p.get("elr"))).setLastKnownElr(numbers(p.get("lastKnownElr")))
            .setAddingReplicas(numbers(p.get("adding"))).setRemovingReplicas(numbers(p.get("removing")))
            .setLeader(p.get("leader").asInt()).setLeaderEpoch(p.get("leaderEpoch").asInt()).setPartitionEpoch(p.get("partitionEpoch").asInt())
            .setLeaderRecoveryState(p.get("recovering").asBoolean() ? LeaderRecoveryState.RECOVERING : LeaderRecoveryState.RECOVERED).build();
        List<Integer> acceptable = list(in.get("acceptable"));
        PartitionChangeBuilder b = new PartitionChangeBuilder(before, Uuid.ONE_UUID, 0, acceptable::contains,
            MetadataVersion.latestProduction(), in.get("minIsr").asInt(), in.get("elrEnabled").asBoolean())
            .setElection(PartitionChangeBuilder.Election.valueOf(in.get("election").asText()))
            .setDefaultDirProvider(id -> DirectoryId.UNASSIGNED);
        if (in.hasNonNull("targetIsr")) b.setTargetIsr(list(in.get("targetIsr")));
        if (in.hasNonNull("targetReplicas")) {
            b.setTargetReplicas(list(in.get("targetReplicas"))).setTargetAdding(list(in.get("targetAdding"))).setTargetRemoving(list(in.get("targetRemoving")));
        }
        if (in.hasNonNull("uncleanShutdown")) b.setUncleanShutdownReplicas(list(in.get("uncleanShutdown")));
        if (in.path("recovered").asBoolean()) b.setTargetLeaderRecoveryState(LeaderRecoveryState.RECOVERED);
        var change = b.build();
        if (change.isEmpty()) return Driver.JSON.nullNode();
        PartitionRegistration after = before.merge((PartitionChangeRecord) change.get().message());
        return Rule.state(after);
    }

    /** What a controller makes of one thing after the other. */
    private static JsonNode rule(JsonNode in) {
        Rule rule = new Rule(in);
        ArrayNode out = Driver.JSON.createArrayNode();
        for (JsonNode op : in.get("ops")) out.add(rule.play(op));
        return out;
    }

    static List<Integer> list(JsonNode n) {
        List<Integer> out = new ArrayList<>();
        if (n != null) n.forEach(e -> out.add(e.asInt()));
        return out;
    }

    private static int[] numbers(JsonNode n) {
        return list(n).stream().mapToInt(Integer::intValue).toArray();
    }
}
