package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * Kafka's UnifiedLog without a broker. Opening and closing do to the log root what a broker's log manager does: lock, clean
 * marker, checkpoints. The log behaves as that of a leader without followers: the high watermark is the log end offset.
 */
final class Logs {
    private static final String RECOVERY_POINT = "recovery-point-offset-checkpoint";
    private static final String LOG_START = "log-start-offset-checkpoint";
    private static final String HIGH_WATERMARK = "replication-offset-checkpoint";

    private static final Map<Integer, Open> open = new HashMap<>();
    private static int last;

    private static final class Open {
        File root;
        TopicPartition tp;
        UnifiedLog log;
        FileLock lock;
        Clock clock;
        boolean clean;
        long checkpointedHighWatermark;
        LogDirFailureChannel failures;
        final List<VerificationGuard> guards = new ArrayList<>();
    }

    private Logs() { }

    static void register(Map<String, Driver.Command> c) {
        c.put("open", Logs::open);
        c.put("state", a -> state(get(a), a.path("brief").asBoolean()));
        c.put("close", Logs::close);
        c.put("abandon", Logs::abandon);
        c.put("clock", a -> {
            get(a).clock.set(a.path("nowMs").asLong(-1));
            return null;
        });
        c.put("expireProducers", a -> {
            get(a).log.removeExpiredProducers(get(a).clock.milliseconds());
            return null;
        });
        c.put("verify", Logs::verify);
        c.put("appendAsLeader", Logs::appendAsLeader);
        c.put("appendAsFollower", Logs::appendAsFollower);
        c.put("records", Logs::records);
        c.put("read", Logs::read);
        c.put("truncateTo", a -> {
            Open o = get(a);
            boolean changed = o.log.truncateTo(a.get("offset").asLong());
            raiseHighWatermark(o);
            return Driver.JSON.createObjectNode().put("changed", changed).put("logEndOffset", o.log.logEndOffset());
        });
        c.put("truncateFullyAndStartAt", a -> {
            Open o = get(a);
            o.log.truncateFullyAndStartAt(a.get("offset").asLong(),
                a.hasNonNull("logStartOffset") ? Optional.of(a.get("logStartOffset").asLong()) : Optional.empty());
            return null;
        });
        c.put("deleteRecords", a -> {
            Open o = get(a);
            boolean moved = o.log.maybeIncrementLogStartOffset(a.get("offset").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
            return Driver.JSON.createObjectNode().put("changed", moved).put("logEndOffset", o.log.logEndOffset());
        });
        c.put("deleteOldSegments", a -> Driver.JSON.createObjectNode().put("deleted", get(a).log.deleteOldSegments()));
        c.put("clean", a -> {
            Open o = get(a);
            return Cleaning.clean(o.root, o.tp, o.log, o.clock, a);
        });
        c.put("highWatermark", a -> {
            get(a).log.updateHighWatermark(a.get("offset").asLong());
            return null;
        });
        c.put("roll", a -> Driver.JSON.createObjectNode().put("baseOffset", get(a).log.roll().baseOffset()));
        c.put("flush", a -> {
            get(a).log.flush(a.path("inclusive").asBoolean());
            return null;
        });
        c.put("assignEpoch", a -> {
            get(a).log.assignEpochStartOffset(a.get("epoch").asInt(), a.get("offset").asLong());
            return null;
        });
        c.put("offsetForTime", Logs::offsetForTime);
        c.put("endOffsetForEpoch", a -> {
            var end = get(a).log.endOffsetForEpoch(a.get("epoch").asInt());
            return end.map(e -> Driver.JSON.createObjectNode().put("epoch", e.epoch()).put("endOffset", e.offset())).orElse(null);
        });
    }

    private static Open get(JsonNode a) {
        Open o = open.get(a.path("log").asInt());
        if (o == null) throw new IllegalArgumentException("no such log " + a.path("log"));
        return o;
    }

    private static Object open(JsonNode a) throws Exception {
        Open o = new Open();
        o.root = new File(a.get("root").asText());
        o.tp = new TopicPartition(a.get("topic").asText(), a.path("partition").asInt());
        o.clock = new Clock();
        o.clock.set(a.path("nowMs").asLong(-1));
        o.failures = new LogDirFailureChannel(1);
        o.lock = new FileLock(new File(o.root, ".lock"));
        if (!o.lock.tryLock()) {
            o.lock.unlockAndClose();
            throw new IllegalStateException("locked: " + o.root);
        }
        try {
            CleanShutdownFileHandler marker = new CleanShutdownFileHandler(o.root.getPath());
            o.clean = marker.exists();
            if (o.clean) marker.delete();
            o.checkpointedHighWatermark = checkpoint(o, HIGH_WATERMARK).read().getOrDefault(o.tp, 0L);
            long recoveryPoint = checkpoint(o, RECOVERY_POINT).read().getOrDefault(o.tp, 0L);
            long logStart = checkpoint(o, LOG_START).read().getOrDefault(o.tp, 0L);
            Optional<Uuid> id = a.hasNonNull("topicId") ? Optional.of(Uuid.fromString(a.get("topicId").asText())) : Optional.empty();
            o.log = UnifiedLog.create(new File(o.root, UnifiedLog.logDirName(o.tp)),
                LogConfig.fromProps(Map.of(), Wire.properties(a.path("config"))),
                logStart, recoveryPoint, new Inline(), new BrokerTopicStats(false), o.clock,
                15 * 60 * 1000, new ProducerStateManagerConfig(a.path("producerExpirationMs").asInt(24 * 3600 * 1000), a.path("verify").asBoolean()), 600_000,
                o.failures, o.clean, id);
            raiseHighWatermark(o);
        } catch (Throwable t) {
            o.lock.unlockAndClose();
            throw t;
        }
        open.put(++last, o);
        ObjectNode s = state(o, false);
        s.put("log", last);
        return s;
    }

    private static void raiseHighWatermark(Open o) throws Exception {
        o.log.updateHighWatermark(o.log.logEndOffset());
    }

    private static OffsetCheckpointFile checkpoint(Open o, String name) throws Exception {
        return new OffsetCheckpointFile(new File(o.root, name), o.failures);
    }

    /** Everything a clean stop of a broker does to this log and its root. */
    private static Object close(JsonNode a) throws Exception {
        Open o = get(a);
        long end = o.log.logEndOffset();
        put(o, HIGH_WATERMARK, o.log.highWatermark());
        o.log.flush(true);
        o.log.close();
        put(o, RECOVERY_POINT, o.log.recoveryPoint());
        long start = o.log.logStartOffset();
        put(o, LOG_START, start > o.log.logSegments().get(0).baseOffset() ? start : null);
        new CleanShutdownFileHandler(o.root.getPath()).write(-1);
        open.remove(a.get("log").asInt());
        o.lock.destroy();
        return Driver.JSON.createObjectNode().put("logEndOffset", end);
    }

    private static void put(Open o, String name, Long offset) throws Exception {
        OffsetCheckpointFile file = checkpoint(o, name);
        Map<TopicPartition, Long> all = new HashMap<>(file.read());
        if (offset == null) all.remove(o.tp);
        else all.put(o.tp, offset);
        file.write(all);
    }

    /** Lets go of the log without writing anything, as if the process had been killed; only the lock file goes on living. */
    private static Object abandon(JsonNode a) throws Exception {
        Open o = get(a);
        open.remove(a.get("log").asInt());
        o.log.closeHandlers();
        o.lock.unlockAndClose();
        return null;
    }

    /** Numbers the guard, from 1 on: the same guard has the same number, 0 is the one that verifies nothing. */
    private static Object verify(JsonNode a) {
        Open o = get(a);
        VerificationGuard guard = o.log.maybeStartTransactionVerification(a.get("producerId").asLong(), a.get("sequence").asInt(),
            (short) a.get("producerEpoch").asInt(), a.path("bumps").asBoolean());
        int number = 0;
        if (guard != VerificationGuard.SENTINEL) {
            if (!o.guards.contains(guard)) o.guards.add(guard);
            number = o.guards.indexOf(guard) + 1;
        }
        return Driver.JSON.createObjectNode().put("guard", number);
    }

    private static VerificationGuard guard(Open o, JsonNode a) {
        int number = a.path("guard").asInt();
        return number == 0 ? VerificationGuard.SENTINEL : o.guards.get(number - 1);
    }

    private static Object appendAsLeader(JsonNode a) throws Exception {
        Open o = get(a);
        AppendOrigin origin = AppendOrigin.valueOf(a.path("origin").asText("CLIENT"));
        LogAppendInfo info = o.log.appendAsLeader(MemoryRecords.readableRecords(ByteBuffer.wrap(a.get("raw").binaryValue())),
            a.path("epoch").asInt(), origin, RequestLocal.noCaching(), guard(o, a), (short) a.path("transactionVersion").asInt(0));
        raiseHighWatermark(o);
        return appended(info);
    }

    private static Object appendAsFollower(JsonNode a) throws Exception {
        Open o = get(a);
        LogAppendInfo info = o.log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(a.get("raw").binaryValue())),
            a.path("epoch").asInt());
        raiseHighWatermark(o);
        return appended(info);
    }

    private static ObjectNode appended(LogAppendInfo i) {
        return Driver.JSON.createObjectNode().put("firstOffset", i.firstOffset()).put("lastOffset", i.lastOffset())
            .put("logAppendTime", i.logAppendTime()).put("logStartOffset", i.logStartOffset()).put("maxTimestamp", i.maxTimestamp());
    }

    /** Data records from an offset on, decoded; control records only if asked for. */
    private static Object records(JsonNode a) throws Exception {
        Open o = get(a);
        long from = a.hasNonNull("from") ? a.get("from").asLong() : o.log.logStartOffset();
        long max = a.path("max").asLong(Long.MAX_VALUE);
        int digestOver = a.path("digestOver").asInt();
        boolean control = a.path("control").asBoolean();
        ArrayNode out = Driver.JSON.createArrayNode();
        for (long next = from; next < o.log.logEndOffset() && out.size() < max; ) {
            long before = next;
            FetchDataInfo fetched = o.log.read(next, 1 << 20, FetchIsolation.LOG_END, true);
            for (RecordBatch batch : fetched.records.batches()) {
                if (batch.lastOffset() < next) continue;
                if (control || !batch.isControlBatch()) {
                    for (Record r : batch) {
                        if (r.offset() >= next && out.size() < max) out.add(decoded(batch, r, digestOver));
                    }
                }
                next = batch.nextOffset();
            }
            if (next == before) break;
        }
        return out;
    }

    static ObjectNode decoded(RecordBatch batch, Record r, int digestOver) {
        return Wire.record(r.offset(), r.timestamp(), batch.timestampType().name, Wire.bytes(r.hasKey() ? r.key() : null),
            Wire.bytes(r.hasValue() ? r.value() : null), r.headers(), digestOver);
    }

    /** Raw bytes as a follower or consumer would fetch them. */
    private static Object read(JsonNode a) throws Exception {
        Open o = get(a);
        FetchDataInfo fetched = o.log.read(a.get("offset").asLong(), a.path("maxBytes").asInt(1 << 20),
            FetchIsolation.valueOf(a.path("isolation").asText("LOG_END")), true);
        Records rs = fetched.records;
        byte[] raw;
        if (rs instanceof MemoryRecords m) {
            raw = Wire.bytes(m.buffer());
        } else {
            ByteBuffer b = ByteBuffer.allocate(rs.sizeInBytes());
            ((org.apache.kafka.common.record.internal.FileRecords) rs).readInto(b, 0);
            raw = Wire.bytes(b);
        }
        ObjectNode n = Driver.JSON.createObjectNode();
        n.put("raw", raw);
        n.put("offset", fetched.fetchOffsetMetadata.messageOffset);
        ArrayNode aborted = n.putArray("aborted");
        fetched.abortedTransactions.ifPresent(all -> all.forEach(t ->
            aborted.addObject().put("producerId", t.producerId()).put("firstOffset", t.firstOffset())));
        return n;
    }

    private static Object offsetForTime(JsonNode a) throws Exception {
        var found = get(a).log.fetchOffsetByTimestamp(a.get("timestamp").asLong(), Optional.empty()).timestampAndOffsetOpt();
        return found.map(t -> Driver.JSON.createObjectNode().put("timestamp", t.timestamp).put("offset", t.offset)
            .put("leaderEpoch", t.leaderEpoch.orElse(-1))).orElse(null);
    }

    /** The fields of asOpenedByKafka in about.json, and the entries of every index; brief is without segments and indexes. */
    private static ObjectNode state(Open o, boolean brief) throws Exception {
        UnifiedLog log = o.log;
        ObjectNode s = Driver.JSON.createObjectNode();
        s.put("openedClean", o.clean);
        s.put("logStartOffset", log.logStartOffset());
        s.put("logEndOffset", log.logEndOffset());
        s.put("highWatermark", log.highWatermark());
        s.put("checkpointedHighWatermark", o.checkpointedHighWatermark);
        s.put("lastStableOffset", log.lastStableOffset());
        s.put("recoveryPoint", log.recoveryPoint());
        s.put("topicId", log.topicId().map(Uuid::toString).orElse(""));
        ArrayNode epochs = s.putArray("leaderEpochs");
        for (EpochEntry e : log.leaderEpochCache().epochEntries()) epochs.addObject().put("epoch", e.epoch()).put("startOffset", e.startOffset());
        ArrayNode segments = s.putArray("segments");
        ArrayNode indexes = s.putArray("indexes");
        ArrayNode aborted = s.putArray("abortedTransactions");
        for (LogSegment segment : log.logSegments()) {
            for (AbortedTxn t : segment.txnIndex().allAbortedTxns()) {
                aborted.addObject().put("producerId", t.producerId()).put("firstOffset", t.firstOffset())
                    .put("lastOffset", t.lastOffset()).put("lastStableOffset", t.lastStableOffset());
            }
            if (brief) continue;
            ObjectNode n = segments.addObject();
            n.put("baseOffset", segment.baseOffset());
            n.put("size", segment.size());
            n.put("indexEntries", segment.offsetIndex().entries());
            n.put("timeIndexEntries", segment.timeIndex().entries());
            n.put("largestTimestamp", segment.largestTimestamp());
            ObjectNode x = indexes.addObject();
            x.put("baseOffset", segment.baseOffset());
            ArrayNode entries = x.putArray("offsets");
            for (int i = 0; i < segment.offsetIndex().entries(); i++) {
                OffsetPosition e = segment.offsetIndex().entry(i);
                if (i > 0 && e.offset() == segment.baseOffset()) break; // slots of zeros: there may be a million
                entries.addObject().put("offset", e.offset()).put("position", e.position());
            }
            entries = x.putArray("times");
            for (int i = 0; i < segment.timeIndex().entries(); i++) {
                TimestampOffset e = segment.timeIndex().entry(i);
                if (i > 0 && e.offset() == segment.baseOffset()) break;
                entries.addObject().put("timestamp", e.timestamp()).put("offset", e.offset());
            }
        }
        ArrayNode producers = s.putArray("producers");
        for (ProducerStateEntry p : new TreeMap<>(log.producerStateManager().activeProducers()).values()) {
            int lastSequence = -1;
            for (BatchMetadata b : p.batchMetadata()) lastSequence = b.lastSeq();
            producers.addObject().put("producerId", p.producerId()).put("epoch", p.producerEpoch()).put("lastSequence", lastSequence)
                .put("lastOffset", p.lastDataOffset()).put("lastTimestamp", p.lastTimestamp()).put("coordinatorEpoch", p.coordinatorEpoch())
                .put("txnFirstOffset", p.currentTxnFirstOffset().orElse(-1)).put("cachedBatches", p.batchMetadata().size());
        }
        return s;
    }
}
