package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Answers one request a line from standard input with one line on standard output, in order, until the input ends.
 *
 * <pre>
 *   {"cmd":"open", ...arguments}        ->  {"ok":{...},"log":["INFO ..."]}
 *                                       or  {"error":{"class":"...","message":"..."},"log":[...]}
 * </pre>
 *
 * Bytes travel as base64. "log" holds what Kafka's storage classes logged while the command ran. Everything else Kafka
 * prints goes to standard error, so that standard output carries answers only.
 */
public final class Driver {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Command {
        Object run(JsonNode args) throws Throwable;
    }

    public static void main(String[] argv) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        Captured log = Captured.attach("org.apache.kafka.storage");

        Map<String, Command> commands = new HashMap<>();
        commands.put("hello", args -> JSON.createObjectNode()
            .put("kafka", org.apache.kafka.common.utils.AppInfoParser.getVersion())
            .put("java", System.getProperty("java.version"))
            .put("pid", ProcessHandle.current().pid()));
        Logs.register(commands);
        Roots.register(commands);
        Batches.register(commands);
        Tools.register(commands);
        Cluster.register(commands);
        Producing.register(commands);
        Placing.register(commands);
        Classic.register(commands);

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        BufferedWriter out = new BufferedWriter(new OutputStreamWriter(answers, StandardCharsets.UTF_8), 1 << 16);
        for (String line; (line = in.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                String name = request.path("cmd").asText();
                Command command = commands.get(name);
                if (command == null) throw new IllegalArgumentException("unknown command " + name);
                answer.set("ok", JSON.valueToTree(command.run(request)));
            } catch (Throwable t) {
                answer.set("error", failure(t));
            }
            answer.set("log", JSON.valueToTree(log.take()));
            out.write(JSON.writeValueAsString(answer));
            out.newLine();
            out.flush();
        }
        // Threads of clients that a test forgot must not keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    static ObjectNode failure(Throwable t) {
        if (t instanceof java.util.concurrent.ExecutionException && t.getCause() != null) t = t.getCause();
        return JSON.createObjectNode().put("class", t.getClass().getSimpleName()).put("message", String.valueOf(t.getMessage()));
    }
}
