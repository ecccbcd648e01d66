package partlog;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.LoggerContext;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.LoggerConfig;
import org.apache.logging.log4j.core.config.Property;

import java.util.ArrayList;
import java.util.List;

/** Keeps the log lines of one logger until they are taken: what Kafka says about a folder is part of its answer. */
final class Captured extends AbstractAppender {
    private final List<String> lines = new ArrayList<>();

    private Captured() {
        super("captured", null, null, true, Property.EMPTY_ARRAY);
    }

    static Captured attach(String logger) {
        Captured c = new Captured();
        c.start();
        LoggerContext context = (LoggerContext) LogManager.getContext(false);
        LoggerConfig config = new LoggerConfig(logger, Level.INFO, false);
        config.addAppender(c, Level.INFO, null);
        context.getConfiguration().addLogger(logger, config);
        context.updateLoggers();
        return c;
    }

    @Override
    public synchronized void append(LogEvent event) {
        lines.add(event.getLevel() + " " + event.getMessage().getFormattedMessage());
    }

    synchronized List<String> take() {
        List<String> out = new ArrayList<>(lines);
        lines.clear();
        return out;
    }
}
