package partlog;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.server.util.FileLock;
import org.apache.kafka.tools.DumpLogSegments;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Kafka's dump tool and the lock of a log root. */
final class Tools {
    private static final Map<String, FileLock> locks = new HashMap<>();

    private Tools() { }

    static void register(Map<String, Driver.Command> c) {
        c.put("dump", Tools::dump);
        c.put("lock", a -> {
            FileLock lock = new FileLock(new File(a.get("root").asText(), ".lock"));
            boolean got = lock.tryLock();
            if (got) locks.put(a.get("root").asText(), lock);
            else lock.unlockAndClose();
            return Driver.JSON.createObjectNode().put("locked", got);
        });
        c.put("unlock", a -> {
            FileLock lock = locks.remove(a.get("root").asText());
            if (lock == null) throw new IllegalStateException("not locked here");
            if (a.path("keepFile").asBoolean()) lock.unlockAndClose();
            else lock.destroy();
            return null;
        });
    }

    /** Runs the tool as on a command line; an exception it does not catch is exit status 1, as there. */
    private static Object dump(JsonNode a) throws Exception {
        List<String> argv = new ArrayList<>();
        for (JsonNode flag : a.path("flags")) argv.add(flag.asText());
        List<String> files = new ArrayList<>();
        for (JsonNode f : a.get("files")) files.add(f.asText());
        argv.add("--files");
        argv.add(String.join(",", files));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream savedOut = System.out;
        PrintStream savedErr = System.err;
        int exit = 0;
        try (PrintStream o = new PrintStream(out, false, StandardCharsets.UTF_8); PrintStream e = new PrintStream(err, false, StandardCharsets.UTF_8)) {
            System.setOut(o);
            System.setErr(e);
            try {
                DumpLogSegments.main(argv.toArray(new String[0]));
            } catch (Throwable t) {
                exit = 1;
                StringWriter trace = new StringWriter();
                t.printStackTrace(new PrintWriter(trace));
                e.print("Exception in thread \"main\" " + trace);
            }
        } finally {
            System.setOut(savedOut);
            System.setErr(savedErr);
        }
        return Driver.JSON.createObjectNode().put("stdout", out.toString(StandardCharsets.UTF_8))
            .put("stderr", err.toString(StandardCharsets.UTF_8)).put("exit", exit);
    }
}
