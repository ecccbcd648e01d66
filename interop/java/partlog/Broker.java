package partlog;

/**
 * A whole Kafka broker that lives no longer than the process that started it: when standard input ends, the virtual
 * machine is halted on the spot. SIGTERM stops it cleanly, as usual.
 */
public final class Broker {
    public static void main(String[] argv) {
        Thread watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException e) {
                // the other end is gone
            }
            Runtime.getRuntime().halt(137);
        }, "owner-watch");
        watch.setDaemon(true);
        watch.start();
        kafka.Kafka.main(argv);
    }
}
