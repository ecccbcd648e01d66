package partlog;

import org.apache.kafka.server.util.Scheduler;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Delayed;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/**
 * Runs what Kafka wants done at once at once (flushing a rolled segment, writing the epoch file) and forgets what it wants
 * done later (deleting .deleted files, expiring producers), as if the process stopped before that time.
 */
final class Inline implements Scheduler {
    @Override
    public void startup() { }

    @Override
    public void shutdown() { }

    @Override
    public void resizeThreadPool(int threads) { }

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (delayMs <= 0 && periodMs < 0) task.run();
        return new Done();
    }

    private static final class Done extends CompletableFuture<Object> implements ScheduledFuture<Object> {
        Done() {
            complete(null);
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }

        @Override
        public Object get() throws InterruptedException, ExecutionException {
            return null;
        }
    }
}
