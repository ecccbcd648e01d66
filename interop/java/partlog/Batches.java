package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.compress.GzipCompression;
import org.apache.kafka.common.compress.Lz4Compression;
import org.apache.kafka.common.compress.ZstdCompression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.CloseableIterator;

import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Map;

/** Bytes of batches without a log: building, parsing, judging, and the bare compression framings. */
final class Batches {
    private Batches() { }

    static void register(Map<String, Driver.Command> c) {
        c.put("validate", Batches::validate);
        c.put("parse", Batches::parse);
        c.put("build", Batches::build);
        c.put("marker", Batches::marker);
        c.put("control", Batches::control);
        c.put("compress", a -> compress(a));
        c.put("decompress", a -> decompress(a));
    }

    /** One verdict a batch: "" accepts, anything else is the reason. */
    private static Object validate(JsonNode a) throws Exception {
        ArrayNode out = Driver.JSON.createArrayNode();
        for (JsonNode b : a.get("batches")) out.add(judge(b.binaryValue()));
        return out;
    }

    /** Accepts exactly one whole batch whose header, checksum and every record are readable. */
    private static String judge(byte[] raw) {
        try (BufferSupplier buffers = BufferSupplier.create()) {
            int batches = 0;
            int bytes = 0;
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(raw)).batches()) {
                if (++batches > 1) return "more than one batch";
                bytes = batch.sizeInBytes();
                batch.ensureValid();
                long count = 0;
                try (CloseableIterator<Record> records = batch.streamingIterator(buffers)) {
                    while (records.hasNext()) {
                        Record r = records.next();
                        r.ensureValid();
                        if (r.hasKey()) r.key();
                        if (r.hasValue()) r.value();
                        r.headers();
                        count++;
                    }
                }
                Integer declared = batch.countOrNull();
                if (declared != null && declared != count) return "count " + declared + " but " + count + " records";
            }
            if (batches == 0) return "incomplete";
            if (bytes != raw.length) return "bytes after the batch";
            return "";
        } catch (Throwable t) {
            return t.getClass().getSimpleName() + ": " + t.getMessage();
        }
    }

    /** Header fields and records of every batch in a region. */
    private static Object parse(JsonNode a) throws Exception {
        ArrayNode out = Driver.JSON.createArrayNode();
        int digestOver = a.path("digestOver").asInt();
        for (MutableRecordBatch b : MemoryRecords.readableRecords(ByteBuffer.wrap(a.get("raw").binaryValue())).batches()) {
            b.ensureValid();
            ObjectNode n = out.addObject();
            n.put("magic", b.magic()).put("baseOffset", b.baseOffset()).put("lastOffset", b.lastOffset()).put("size", b.sizeInBytes())
                .put("codec", b.compressionType().name).put("timestampType", b.timestampType().name).put("maxTimestamp", b.maxTimestamp())
                .put("leaderEpoch", b.partitionLeaderEpoch()).put("producerId", b.producerId()).put("producerEpoch", b.producerEpoch())
                .put("baseSequence", b.baseSequence()).put("transactional", b.isTransactional()).put("control", b.isControlBatch())
                .put("checksum", b.checksum());
            if (b.deleteHorizonMs().isPresent()) n.put("deleteHorizonMs", b.deleteHorizonMs().getAsLong());
            else n.putNull("deleteHorizonMs");
            ArrayNode records = n.putArray("records");
            for (Record r : b) records.add(Logs.decoded(b, r, digestOver));
        }
        return out;
    }

    private static Object build(JsonNode a) throws Exception {
        byte magic = (byte) a.path("magic").asInt(RecordBatch.CURRENT_MAGIC_VALUE);
        TimestampType type = TimestampType.forName(a.path("timestampType").asText("CreateTime"));
        ByteBufferOutputStream out = new ByteBufferOutputStream(4096);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(out, magic, compression(a), type,
            a.path("baseOffset").asLong(), a.path("logAppendTime").asLong(RecordBatch.NO_TIMESTAMP),
            a.path("producerId").asLong(RecordBatch.NO_PRODUCER_ID), (short) a.path("producerEpoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
            a.path("baseSequence").asInt(RecordBatch.NO_SEQUENCE), a.path("transactional").asBoolean(), false,
            a.path("leaderEpoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH), Integer.MAX_VALUE,
            a.hasNonNull("deleteHorizonMs") ? a.get("deleteHorizonMs").asLong() : RecordBatch.NO_TIMESTAMP);
        boolean offsets = a.path("keepOffsets").asBoolean();
        for (JsonNode r : a.get("records")) {
            Header[] headers = magic < 2 ? Record.EMPTY_HEADERS : Wire.headers(r);
            byte[] key = Wire.bytes(r.get("key"));
            byte[] value = Wire.bytes(r.get("value"));
            long timestamp = r.path("timestamp").asLong(RecordBatch.NO_TIMESTAMP);
            if (magic == 0) timestamp = RecordBatch.NO_TIMESTAMP;
            if (offsets) builder.appendWithOffset(r.get("offset").asLong(), timestamp, key, value, headers);
            else builder.append(new SimpleRecord(timestamp, key, value, headers));
        }
        if (a.hasNonNull("lastOffset")) builder.overrideLastOffset(a.get("lastOffset").asLong());
        return Driver.JSON.createObjectNode().put("raw", Wire.bytes(builder.build().buffer()));
    }

    private static Object marker(JsonNode a) {
        ControlRecordType type = a.path("commit").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        MemoryRecords m = MemoryRecords.withEndTransactionMarker(a.path("baseOffset").asLong(), a.get("timestamp").asLong(),
            a.path("leaderEpoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH), a.get("producerId").asLong(),
            (short) a.get("producerEpoch").asInt(), new EndTransactionMarker(type, a.path("coordinatorEpoch").asInt()));
        return Driver.JSON.createObjectNode().put("raw", Wire.bytes(m.buffer()));
    }

    /** A control batch of the metadata log: "type" with "message", as Kafka's own JSON has it. */
    private static Object control(JsonNode a) {
        ByteBufferOutputStream out = new ByteBufferOutputStream(512);
        long timestamp = a.get("timestamp").asLong();
        MemoryRecordsBuilder b = new MemoryRecordsBuilder(out, RecordBatch.CURRENT_MAGIC_VALUE, Compression.NONE, TimestampType.CREATE_TIME,
            a.path("baseOffset").asLong(), timestamp, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE,
            false, true, a.path("leaderEpoch").asInt(RecordBatch.NO_PARTITION_LEADER_EPOCH), Integer.MAX_VALUE);
        JsonNode message = a.get("message");
        int type = a.get("type").asInt();
        switch (type) {
            case 2 -> b.appendLeaderChangeMessage(timestamp, LeaderChangeMessageJsonConverter.read(message, (short) 0));
            case 3 -> b.appendSnapshotHeaderMessage(timestamp, SnapshotHeaderRecordJsonConverter.read(message, (short) 0));
            case 4 -> b.appendSnapshotFooterMessage(timestamp, SnapshotFooterRecordJsonConverter.read(message, (short) 0));
            case 5 -> b.appendKRaftVersionMessage(timestamp, KRaftVersionRecordJsonConverter.read(message, (short) 0));
            case 6 -> b.appendVotersMessage(timestamp, VotersRecordJsonConverter.read(message, (short) 0));
            default -> throw new IllegalArgumentException("type " + type);
        }
        return Driver.JSON.createObjectNode().put("raw", Wire.bytes(b.build().buffer()));
    }

    static Compression compression(JsonNode a) {
        CompressionType type = CompressionType.forName(a.path("codec").asText("none"));
        if (!a.hasNonNull("level") || a.get("level").asInt() == 0) return Compression.of(type).build();
        int level = a.get("level").asInt();
        return switch (type) {
            case GZIP -> new GzipCompression.Builder().level(level).build();
            case LZ4 -> new Lz4Compression.Builder().level(level).build();
            case ZSTD -> new ZstdCompression.Builder().level(level).build();
            default -> Compression.of(type).build();
        };
    }

    private static Object compress(JsonNode a) throws Exception {
        ByteBufferOutputStream out = new ByteBufferOutputStream(512);
        try (OutputStream w = compression(a).wrapForOutput(out, (byte) a.path("magic").asInt(2))) {
            w.write(a.get("raw").binaryValue());
        }
        ByteBuffer b = out.buffer();
        b.flip();
        return Driver.JSON.createObjectNode().put("raw", Wire.bytes(b));
    }

    private static Object decompress(JsonNode a) throws Exception {
        try (BufferSupplier buffers = BufferSupplier.create();
             InputStream in = compression(a).wrapForInput(ByteBuffer.wrap(a.get("raw").binaryValue()), (byte) a.path("magic").asInt(2), buffers)) {
            return Driver.JSON.createObjectNode().put("raw", in.readNBytes(a.path("max").asInt(64 << 20)));
        }
    }
}
