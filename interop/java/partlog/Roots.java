package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import kafka.log.LogManager;
import kafka.server.builders.LogManagerBuilder;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** A whole log root under Kafka's LogManager, started and stopped as a broker does it, but nothing runs in the background. */
final class Roots {
    private static final Map<Integer, LogManager> open = new HashMap<>();
    private static int last;

    private Roots() { }

    static void register(Map<String, Driver.Command> c) {
        c.put("openRoot", Roots::open);
        c.put("closeRoot", a -> {
            open.remove(a.get("manager").asInt()).shutdown(-1);
            return null;
        });
        c.put("abandonRoot", a -> {
            abandon(open.remove(a.get("manager").asInt()));
            return null;
        });
    }

    private static Object open(JsonNode a) throws Exception {
        File root = new File(a.get("root").asText());
        Clock clock = new Clock();
        clock.set(a.path("nowMs").asLong(-1));
        LogDirFailureChannel failures = new LogDirFailureChannel(8);
        LogManager m = new LogManagerBuilder().setLogDirs(List.of(root)).setInitialOfflineDirs(List.of())
            .setConfigRepository(resource -> new Properties())
            .setInitialDefaultConfig(LogConfig.fromProps(Map.of(), Wire.properties(a.path("config"))))
            .setCleanerConfig(new CleanerConfig(false)).setRecoveryThreadsPerDataDir(1)
            .setScheduler(new Inline()).setBrokerTopicStats(new BrokerTopicStats(false))
            .setLogDirFailureChannel(failures).setTime(clock).build();
        try {
            m.startup(scala.collection.immutable.Set$.MODULE$.empty(), log -> false);
        } catch (Throwable t) {
            abandon(m);
            throw t;
        }
        open.put(++last, m);
        ObjectNode n = Driver.JSON.createObjectNode().put("manager", last).put("online", !failures.hasOfflineLogDir(root.getPath())).put("deletes", m.hasLogsToBeDeleted());
        ArrayNode logs = n.putArray("logs");
        for (UnifiedLog log : logs(m)) {
            logs.addObject().put("folder", log.dir().getName()).put("future", log.isFuture()).put("start", log.logStartOffset())
                .put("end", log.logEndOffset()).put("recoveryPoint", log.recoveryPoint()).put("segments", log.logSegments().size());
        }
        return n;
    }

    private static List<UnifiedLog> logs(LogManager m) {
        List<UnifiedLog> all = new ArrayList<>();
        m.allLogs().foreach(all::add);
        return all;
    }

    /** Lets go of everything without writing, as if the process had been killed. */
    private static void abandon(LogManager m) throws IOException {
        for (UnifiedLog log : logs(m)) log.closeHandlers();
        List<FileLock> locks = new ArrayList<>();
        m.dirLocks().foreach(locks::add);
        for (FileLock lock : locks) lock.unlockAndClose();
    }
}
