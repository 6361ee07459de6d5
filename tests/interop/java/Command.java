import java.io.UnsupportedEncodingException;
import java.net.URLDecoder;
import java.util.LinkedHashMap;
import java.util.Map;

/** One line of stdin: a verb, then name=value, both percent-encoded, separated by spaces. */
final class Command {
    final String verb;
    private final Map<String, String> fields = new LinkedHashMap<>();

    Command(String line) throws UnsupportedEncodingException {
        String[] words = line.trim().split(" ");
        verb = words[0];
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            fields.put(decoded(words[i].substring(0, at)), decoded(words[i].substring(at + 1)));
        }
    }

    private static String decoded(String text) throws UnsupportedEncodingException {
        return URLDecoder.decode(text.replace("+", "%2B"), "UTF-8");
    }

    boolean has(String name) {
        return fields.containsKey(name);
    }

    String text(String name) {
        String value = fields.get(name);
        if (value == null) {
            throw new IllegalArgumentException(verb + " needs " + name);
        }
        return value;
    }

    String text(String name, String otherwise) {
        return fields.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return has(name) ? Integer.parseInt(text(name)) : otherwise;
    }

    long bigNumber(String name, long otherwise) {
        return has(name) ? Long.parseLong(text(name)) : otherwise;
    }

    boolean yes(String name) {
        return "true".equalsIgnoreCase(text(name, "false"));
    }

    /** Fields whose names begin with a prefix, without it. */
    Map<String, String> under(String prefix) {
        Map<String, String> found = new LinkedHashMap<>();
        for (Map.Entry<String, String> entry : fields.entrySet()) {
            if (entry.getKey().startsWith(prefix)) {
                found.put(entry.getKey().substring(prefix.length()), entry.getValue());
            }
        }
        return found;
    }
}
