/** The driver without transactions: 4.2 has another interface for them. Argument: name server. */
public final class Modes {
    private Modes() {
    }

    public static void main(String[] arguments) throws Exception {
        new ModesDriver(arguments[0]).run();
    }
}
