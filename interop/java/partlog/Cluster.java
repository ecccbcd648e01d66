package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** A running broker through Kafka's own clients; every command makes and closes its client. */
final class Cluster {
    private static final int TIMEOUT_MS = 30_000;

    private Cluster() { }

    static void register(Map<String, Driver.Command> c) {
        c.put("format", Cluster::format);
        c.put("createTopic", Cluster::createTopic);
        c.put("describeTopic", Cluster::describeTopic);
        c.put("deleteTopic", a -> {
            try (Admin admin = admin(a)) {
                return done(admin.deleteTopics(List.of(a.get("topic").asText())).all());
            }
        });
        c.put("produce", Cluster::produce);
        c.put("consume", Cluster::consume);
        c.put("deleteRecordsBefore", a -> {
            try (Admin admin = admin(a)) {
                TopicPartition tp = partition(a);
                long low = wait(admin.deleteRecords(Map.of(tp, RecordsToDelete.beforeOffset(a.get("offset").asLong()))).lowWatermarks().get(tp)).lowWatermark();
                return Driver.JSON.createObjectNode().put("lowWatermark", low);
            }
        });
        c.put("listOffset", Cluster::listOffset);
    }

    private static Object done(Future<?> f) throws Exception {
        wait(f);
        return null;
    }

    private static <T> T wait(Future<T> f) throws Exception {
        return f.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
    }

    private static Admin admin(JsonNode a) {
        Properties p = new Properties();
        p.put("bootstrap.servers", a.get("bootstrap").asText());
        p.put("default.api.timeout.ms", String.valueOf(TIMEOUT_MS));
        return Admin.create(p);
    }

    private static TopicPartition partition(JsonNode a) {
        return new TopicPartition(a.get("topic").asText(), a.path("partition").asInt());
    }

    private static Object format(JsonNode a) {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        int exit = kafka.tools.StorageTool.execute(new String[] {"format", "--ignore-formatted", "--cluster-id", a.get("clusterId").asText(),
            "--config", a.get("config").asText()}, new PrintStream(text, true, StandardCharsets.UTF_8));
        if (exit != 0) throw new IllegalStateException(text.toString(StandardCharsets.UTF_8));
        return null;
    }

    private static Object createTopic(JsonNode a) throws Exception {
        try (Admin admin = admin(a)) {
            Map<String, String> config = new HashMap<>();
            a.path("config").fields().forEachRemaining(e -> config.put(e.getKey(), e.getValue().asText()));
            var created = admin.createTopics(List.of(new NewTopic(a.get("topic").asText(), a.path("partitions").asInt(1), (short) 1).configs(config)));
            wait(created.all());
            return Driver.JSON.createObjectNode().put("topicId", wait(created.topicId(a.get("topic").asText())).toString());
        }
    }

    private static Object describeTopic(JsonNode a) throws Exception {
        try (Admin admin = admin(a)) {
            String topic = a.get("topic").asText();
            TopicDescription d = wait(admin.describeTopics(List.of(topic)).topicNameValues().get(topic));
            return Driver.JSON.createObjectNode().put("topicId", d.topicId().toString())
                .put("leader", d.partitions().get(0).leader() == null ? -1 : d.partitions().get(0).leader().id());
        }
    }

    /** Sends the records in order and answers the offset of each; transactional if a transactional id is given. */
    private static Object produce(JsonNode a) throws Exception {
        Properties p = Wire.properties(a.path("config"));
        p.put("bootstrap.servers", a.get("bootstrap").asText());
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        p.putIfAbsent("linger.ms", "50");
        p.putIfAbsent("delivery.timeout.ms", "60000");
        p.putIfAbsent("max.request.size", "10000000");
        ArrayNode out = Driver.JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p)) {
            boolean transactional = p.containsKey("transactional.id");
            if (transactional) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            TopicPartition tp = partition(a);
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode r : a.get("records")) {
                Long timestamp = r.hasNonNull("timestamp") && r.get("timestamp").asLong() >= 0 ? r.get("timestamp").asLong() : null;
                sent.add(producer.send(new ProducerRecord<>(tp.topic(), tp.partition(), timestamp,
                    Wire.bytes(r.get("key")), Wire.bytes(r.get("value")), Arrays.asList(Wire.headers(r)))));
            }
            producer.flush();
            for (Future<RecordMetadata> f : sent) out.add(wait(f).offset());
            if (transactional && a.path("end").asText().equals("commit")) producer.commitTransaction();
            if (transactional && a.path("end").asText().equals("abort")) producer.abortTransaction();
            producer.close(Duration.ofSeconds(transactional ? 0 : 10));
        }
        return out;
    }

    /** Reads from the beginning (or "from") to the end of the partition as it is now. */
    private static Object consume(JsonNode a) throws Exception {
        TopicPartition tp = partition(a);
        Properties p = new Properties();
        p.put("bootstrap.servers", a.get("bootstrap").asText());
        p.put("key.deserializer", ByteArrayDeserializer.class.getName());
        p.put("value.deserializer", ByteArrayDeserializer.class.getName());
        p.put("auto.offset.reset", "none");
        p.put("fetch.max.wait.ms", "50");
        p.put("isolation.level", a.path("isolation").asText("read_uncommitted"));
        p.put("default.api.timeout.ms", String.valueOf(TIMEOUT_MS));
        int digestOver = a.path("digestOver").asInt();
        ObjectNode answer = Driver.JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(p)) {
            consumer.assign(List.of(tp));
            long begin = consumer.beginningOffsets(List.of(tp)).get(tp);
            long end = consumer.endOffsets(List.of(tp)).get(tp);
            answer.put("beginningOffset", begin).put("endOffset", end);
            ArrayNode out = answer.putArray("records");
            consumer.seek(tp, a.hasNonNull("from") ? a.get("from").asLong() : begin);
            long deadline = System.currentTimeMillis() + TIMEOUT_MS;
            while (consumer.position(tp) < end) {
                if (System.currentTimeMillis() > deadline) throw new IllegalStateException("stuck at " + consumer.position(tp) + " of " + end);
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(500))) {
                    if (r.offset() < end) {
                        out.add(Wire.record(r.offset(), r.timestamp(), r.timestampType().name, r.key(), r.value(), r.headers().toArray(), digestOver));
                    }
                }
            }
        }
        return answer;
    }

    private static Object listOffset(JsonNode a) throws Exception {
        OffsetSpec spec = switch (a.path("spec").asText("latest")) {
            case "earliest" -> OffsetSpec.earliest();
            case "maxTimestamp" -> OffsetSpec.maxTimestamp();
            case "timestamp" -> OffsetSpec.forTimestamp(a.get("timestamp").asLong());
            default -> OffsetSpec.latest();
        };
        IsolationLevel isolation = a.path("isolation").asText().equals("read_committed") ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED;
        try (Admin admin = admin(a)) {
            TopicPartition tp = partition(a);
            var r = wait(admin.listOffsets(Map.of(tp, spec), new ListOffsetsOptions(isolation)).partitionResult(tp));
            return Driver.JSON.createObjectNode().put("offset", r.offset()).put("timestamp", r.timestamp()).put("leaderEpoch", r.leaderEpoch().orElse(-1));
        }
    }
}
