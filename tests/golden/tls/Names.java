// Writes the distinguished names of tests/golden/tls/generate.py as Java does.
//
// Input: lines of hex, each the DER form of a name. Output: a line of hex for each, the UTF-8 bytes
// of X500Principal.getName(), which is RFC 2253 and what Kafka's principals contain.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;

public class Names {
    public static void main(String[] arguments) throws Exception {
        HexFormat hex = HexFormat.of();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String name = new X500Principal(hex.parseHex(line)).getName();
            System.out.println(hex.formatHex(name.getBytes(StandardCharsets.UTF_8)));
        }
    }
}
