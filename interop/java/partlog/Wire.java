package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Properties;

/** Records, headers and settings as JSON, in the shape of the golden folders' records.jsonl. */
final class Wire {
    private Wire() { }

    static byte[] bytes(JsonNode n) throws IOException {
        return n == null || n.isNull() || n.isMissingNode() ? null : n.binaryValue();
    }

    static byte[] bytes(ByteBuffer b) {
        if (b == null) return null;
        byte[] out = new byte[b.remaining()];
        b.duplicate().get(out);
        return out;
    }

    /** Fields longer than digestOver (0: never) are replaced by their length and SHA-256. */
    static ObjectNode record(long offset, long timestamp, String type, byte[] key, byte[] value, Header[] headers, int digestOver) {
        ObjectNode o = Driver.JSON.createObjectNode();
        o.put("offset", offset);
        o.put("timestamp", timestamp);
        o.put("timestampType", type);
        field(o, "key", key, digestOver);
        field(o, "value", value, digestOver);
        ArrayNode hs = o.putArray("headers");
        for (Header h : headers) {
            ArrayNode pair = hs.addArray();
            pair.add(h.key());
            if (h.value() == null) pair.addNull();
            else pair.add(h.value());
        }
        return o;
    }

    private static void field(ObjectNode o, String name, byte[] b, int digestOver) {
        if (b != null && digestOver > 0 && b.length > digestOver) {
            o.putObject(name + "Digest").put("length", b.length).put("sha256", sha256(b));
            return;
        }
        if (b == null) o.putNull(name);
        else o.put(name, b);
    }

    private static String sha256(byte[] b) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(b));
        } catch (java.security.NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }

    static Header[] headers(JsonNode record) throws IOException {
        JsonNode list = record.path("headers");
        Header[] out = new Header[list.size()];
        for (int i = 0; i < out.length; i++) {
            out[i] = new RecordHeader(list.get(i).get(0).asText(), bytes(list.get(i).get(1)));
        }
        return out;
    }

    static Properties properties(JsonNode map) {
        Properties p = new Properties();
        map.fields().forEachRemaining(e -> p.put(e.getKey(), e.getValue().asText()));
        return p;
    }

    static byte[] utf8(String s) {
        return s.getBytes(StandardCharsets.UTF_8);
    }
}
