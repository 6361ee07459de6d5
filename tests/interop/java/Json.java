import java.util.Map;

/** Writes maps, lists, numbers and strings as one line of JSON. */
final class Json {
    private Json() {
    }

    static String of(Object value) {
        StringBuilder text = new StringBuilder();
        write(text, value);
        return text.toString();
    }

    private static void write(StringBuilder text, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            text.append(value);
        } else if (value instanceof Map) {
            char before = '{';
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                text.append(before);
                quote(text, String.valueOf(entry.getKey()));
                text.append(':');
                write(text, entry.getValue());
                before = ',';
            }
            text.append(before == '{' ? "{}" : "}");
        } else if (value instanceof Iterable) {
            char before = '[';
            for (Object item : (Iterable<?>) value) {
                text.append(before);
                write(text, item);
                before = ',';
            }
            text.append(before == '[' ? "[]" : "]");
        } else {
            quote(text, String.valueOf(value));
        }
    }

    private static void quote(StringBuilder text, String value) {
        text.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < 0x20 || c > 0x7e) {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }
}
