package partlog;

import org.apache.kafka.common.utils.Time;

import java.util.function.Supplier;

/** The system clock, or one that stands at a given millisecond: producers expire and files age by it. */
final class Clock implements Time {
    private volatile long fixed = -1;

    void set(long ms) {
        fixed = ms;
    }

    @Override
    public long milliseconds() {
        return fixed >= 0 ? fixed : System.currentTimeMillis();
    }

    @Override
    public long nanoseconds() {
        return System.nanoTime();
    }

    @Override
    public void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @Override
    public void waitObject(Object o, Supplier<Boolean> done, long deadlineMs) throws InterruptedException {
        synchronized (o) {
            while (!done.get()) {
                long left = deadlineMs - milliseconds();
                if (left <= 0) throw new org.apache.kafka.common.errors.TimeoutException("waitObject");
                o.wait(left);
            }
        }
    }
}
