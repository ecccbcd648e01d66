package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.requests.WriteTxnMarkersRequest;
import org.apache.kafka.common.requests.WriteTxnMarkersResponse;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.DataInputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Producers that live on between commands, and what no producer of Kafka's lets its user do: requests of any content. */
final class Producing {
    /** Of the produce requests below: the last version under which the broker does not add partitions to transactions itself. */
    private static final short PRODUCE_VERSION = ProduceRequest.LAST_STABLE_VERSION_BEFORE_TRANSACTION_V2;

    private static final Map<Integer, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private static int last;

    private Producing() { }

    static void register(Map<String, Driver.Command> c) {
        c.put("producerOpen", Producing::open);
        c.put("producerBegin", a -> {
            get(a).beginTransaction();
            return null;
        });
        c.put("producerSend", Producing::send);
        c.put("producerEnd", a -> {
            if (a.path("commit").asBoolean()) get(a).commitTransaction();
            else get(a).abortTransaction();
            return null;
        });
        c.put("producerClose", a -> {
            get(a).close(Duration.ofMillis(a.path("waitMs").asLong()));
            producers.remove(a.get("producer").asInt());
            return null;
        });
        c.put("rawProduce", Producing::rawProduce);
        c.put("writeMarker", Producing::writeMarker);
        c.put("describeProducers", Producing::describe);
        c.put("abortTransaction", Producing::abort);
    }

    private static KafkaProducer<byte[], byte[]> get(JsonNode a) {
        KafkaProducer<byte[], byte[]> p = producers.get(a.path("producer").asInt());
        if (p == null) throw new IllegalArgumentException("no such producer " + a.path("producer"));
        return p;
    }

    private static Object open(JsonNode a) {
        Properties p = Wire.properties(a.path("config"));
        p.put("bootstrap.servers", a.get("bootstrap").asText());
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        p.putIfAbsent("linger.ms", "20");
        p.putIfAbsent("max.request.size", "10000000");
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p);
        producers.put(++last, producer);
        if (p.containsKey("transactional.id")) producer.initTransactions();
        return Driver.JSON.createObjectNode().put("producer", last);
    }

    private static Object send(JsonNode a) throws Exception {
        KafkaProducer<byte[], byte[]> producer = get(a);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode r : a.get("records")) {
            Long timestamp = r.hasNonNull("timestamp") && r.get("timestamp").asLong() >= 0 ? r.get("timestamp").asLong() : null;
            sent.add(producer.send(new ProducerRecord<>(a.get("topic").asText(), 0, timestamp,
                Wire.bytes(r.get("key")), Wire.bytes(r.get("value")), Arrays.asList(Wire.headers(r)))));
        }
        producer.flush();
        ArrayNode out = Driver.JSON.createArrayNode();
        for (Future<RecordMetadata> f : sent) out.add(f.get(60, TimeUnit.SECONDS).offset());
        return out;
    }

    /** One batch as it is, to partition 0 with acks all. */
    private static Object rawProduce(JsonNode a) throws Exception {
        ProduceRequestData.TopicProduceDataCollection topics = new ProduceRequestData.TopicProduceDataCollection();
        topics.add(new ProduceRequestData.TopicProduceData().setName(a.get("topic").asText()).setPartitionData(List.of(
            new ProduceRequestData.PartitionProduceData().setIndex(0)
                .setRecords(MemoryRecords.readableRecords(ByteBuffer.wrap(a.get("raw").binaryValue()))))));
        AbstractRequest request = new ProduceRequest(new ProduceRequestData().setAcks((short) -1).setTimeoutMs(10_000)
            .setTransactionalId(a.path("transactional").asBoolean() ? "raw" : null).setTopicData(topics), PRODUCE_VERSION);
        var p = ((ProduceResponse) ask(a, request)).data().responses().iterator().next().partitionResponses().get(0);
        refuse(Errors.forCode(p.errorCode()), p.errorMessage());
        return Driver.JSON.createObjectNode().put("baseOffset", p.baseOffset()).put("logAppendTime", p.logAppendTimeMs());
    }

    /** What a transaction coordinator sends to end a transaction. */
    private static Object writeMarker(JsonNode a) throws Exception {
        TopicPartition tp = new TopicPartition(a.get("topic").asText(), 0);
        long id = a.get("producerId").asLong();
        AbstractRequest request = new WriteTxnMarkersRequest.Builder(List.of(new WriteTxnMarkersRequest.TxnMarkerEntry(id,
            (short) a.get("producerEpoch").asInt(), a.path("coordinatorEpoch").asInt(),
            a.path("commit").asBoolean() ? TransactionResult.COMMIT : TransactionResult.ABORT, List.of(tp),
            (short) a.path("transactionVersion").asInt()))).build(ApiKeys.WRITE_TXN_MARKERS.latestVersion());
        refuse(((WriteTxnMarkersResponse) ask(a, request)).errorsByProducerId().get(id).get(tp), null);
        return null;
    }

    private static void refuse(Errors error, String message) {
        if (error != Errors.NONE) throw error.exception(message);
    }

    /** Sends one request on a connection of its own. */
    private static AbstractResponse ask(JsonNode a, AbstractRequest request) throws Exception {
        String[] address = a.get("bootstrap").asText().split(":");
        RequestHeader header = new RequestHeader(request.apiKey(), request.version(), "interop", 1);
        ByteBuffer bytes = request.serializeWithHeader(header);
        try (Socket s = new Socket(address[0], Integer.parseInt(address[1]))) {
            s.setSoTimeout(30_000);
            ByteBuffer framed = ByteBuffer.allocate(4 + bytes.remaining());
            framed.putInt(bytes.remaining()).put(bytes);
            OutputStream out = s.getOutputStream();
            out.write(framed.array());
            out.flush();
            DataInputStream in = new DataInputStream(s.getInputStream());
            byte[] answer = new byte[in.readInt()];
            in.readFully(answer);
            return AbstractResponse.parseResponse(ByteBuffer.wrap(answer), header);
        }
    }

    private static Admin admin(JsonNode a) {
        Properties p = new Properties();
        p.put("bootstrap.servers", a.get("bootstrap").asText());
        return Admin.create(p);
    }

    private static Object describe(JsonNode a) throws Exception {
        TopicPartition tp = new TopicPartition(a.get("topic").asText(), 0);
        ArrayNode out = Driver.JSON.createArrayNode();
        try (Admin admin = admin(a)) {
            for (ProducerState p : admin.describeProducers(List.of(tp)).partitionResult(tp).get(30, TimeUnit.SECONDS).activeProducers()) {
                out.addObject().put("producerId", p.producerId()).put("epoch", p.producerEpoch()).put("lastSequence", p.lastSequence())
                    .put("lastTimestamp", p.lastTimestamp()).put("coordinatorEpoch", p.coordinatorEpoch().orElse(-1))
                    .put("txnFirstOffset", p.currentTransactionStartOffset().orElse(-1));
            }
        }
        return out;
    }

    /** What Kafka's tool for hanging transactions does. */
    private static Object abort(JsonNode a) throws Exception {
        try (Admin admin = admin(a)) {
            admin.abortTransaction(new AbortTransactionSpec(new TopicPartition(a.get("topic").asText(), 0), a.get("producerId").asLong(),
                (short) a.get("producerEpoch").asInt(), a.path("coordinatorEpoch").asInt())).all().get(30, TimeUnit.SECONDS);
        }
        return null;
    }
}
