package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

import java.io.File;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

/** Kafka's log cleaner on one open log: its manager chooses and keeps the checkpoint, its Cleaner does the work. */
final class Cleaning {
    private Cleaning() { }

    /**
     * One cleaning. Without "force" only if the manager finds the log dirty enough. "map" is the memory for keys, "load" how
     * much of it may be used, "buffer" the size of the buffers.
     */
    static Object clean(File root, TopicPartition tp, UnifiedLog log, Clock clock, JsonNode a) throws Exception {
        ConcurrentMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>();
        logs.put(tp, log);
        LogCleanerManager manager = new LogCleanerManager(List.of(root), logs, new LogDirFailureChannel(1));
        ObjectNode answer = Driver.JSON.createObjectNode();
        try {
            Optional<Long> before = Optional.ofNullable(manager.allCleanerCheckpoints().get(tp));
            LogToClean choice = manager.grabFilthiestCompactedLog(clock, new PreCleanStats()).orElse(null);
            answer.put("due", choice != null);
            if (choice == null) {
                if (!a.path("force").asBoolean()) return answer;
                choice = choice(log, before, clock);
            }
            answer.put("firstDirty", choice.firstDirtyOffset()).put("uncleanable", choice.firstUncleanableOffset())
                .put("cleanBytes", choice.cleanBytes()).put("cleanableBytes", choice.cleanableBytes());
            if (choice.cleanableBytes() == 0) return answer;
            int[] left = {a.path("interruptAfter").asInt(-1)};
            Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(a.path("map").asInt(1 << 20)), a.path("buffer").asInt(1 << 16), 16 << 20,
                a.path("load").asDouble(0.9), new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", clock), clock, t -> {
                    if (left[0]-- == 0) throw new IllegalStateException("as asked for");
                });
            long next = cleaner.clean(choice).getKey();
            answer.put("nextDirty", next);
            // What the manager does after a cleaning of its own.
            manager.updateCheckpoints(root, Optional.of(java.util.Map.entry(tp, next)), Optional.empty());
            return answer;
        } finally {
            manager.removeMetrics();
        }
    }

    /** What the manager would choose if the log were dirty enough. */
    private static LogToClean choice(UnifiedLog log, Optional<Long> checkpoint, Clock clock) throws Exception {
        Method m = LogCleanerManager.class.getDeclaredMethod("cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        m.setAccessible(true);
        Object offsets = m.invoke(null, log, checkpoint, clock.milliseconds());
        return new LogToClean(log, offset(offsets, "firstDirtyOffset"), offset(offsets, "firstUncleanableDirtyOffset"), true);
    }

    private static long offset(Object offsets, String name) throws Exception {
        Method m = offsets.getClass().getDeclaredMethod(name);
        m.setAccessible(true);
        return (long) m.invoke(offsets);
    }
}
