//! How deep a settings file is nested, told from its text before it is parsed. Brackets and dotted keys are each bounded by
//! the parser, and multiply; what walks or drops the values walks that deep, on a thread whose stack is small.

/// Levels below a table's header.
const MAX: usize = 64;

/// Whether the text is nested deeper than any settings are. In doubt it is: what is no TOML at all may be counted wrongly.
pub(super) fn is_too_deep(text: &str) -> bool {
    let bytes = text.as_bytes();
    // What each open bracket adds; dots of the key before it count.
    let (mut open, mut depth, mut dots, mut at) = (Vec::new(), 0, 0, 0);
    while let Some(byte) = bytes.get(at) {
        at += match byte {
            b'#' => length(&bytes[at..], b"\n"),
            b'"' | b'\'' => string(&bytes[at..], *byte),
            other => {
                match other {
                    b'.' => dots += 1,
                    b'{' | b'[' => {
                        open.push(dots + 1);
                        depth += dots + 1;
                        dots = 0;
                    }
                    b'}' | b']' => {
                        depth -= open.pop().unwrap_or_default();
                        dots = 0;
                    }
                    b',' | b'\n' => dots = 0,
                    _ => {}
                }
                1
            }
        };
        if depth + dots > MAX {
            return true;
        }
    }
    false
}

/// Bytes up to and with `end`; all, if it does not come.
fn length(bytes: &[u8], end: &[u8]) -> usize {
    bytes.windows(end.len()).position(|window| window == end).map_or(bytes.len(), |found| found + end.len())
}

/// Bytes of the string that begins here.
fn string(bytes: &[u8], quote: u8) -> usize {
    let three = [quote; 3];
    if quote == b'\'' {
        return match bytes.starts_with(&three) {
            true => 3 + length(&bytes[3..], &three),
            false => 1 + length(&bytes[1..], b"'"),
        };
    }
    let end: &[u8] = if bytes.starts_with(&three) { &three } else { b"\"" };
    let mut at = end.len();
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            _ if bytes[at..].starts_with(end) => return at + end.len(),
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_not_too_deep_and_what_multiplies_is() {
        let deep = |levels: usize, key: &str| {
            format!("hooks = {}1{}\n", format!("{{{key} = ").repeat(levels), "}".repeat(levels))
        };
        let dotted = vec!["a"; 70].join(".");
        for (text, wanted) in [
            (
                "[permissions]\ndeny = [\"Bash(a.b.c)\", 'x.y', \"\"\"\n{{{{ \\\" ....\"\"\"]\n".to_owned(),
                false,
            ),
            (format!("x = \"{}\"\n# {}\n", "{.".repeat(100), "[".repeat(100)), false),
            (format!("x = [{}]\n", "1.5, ".repeat(1000)), false),
            ("[a.b.c]\nd.e = 1\n".repeat(500), false),
            (deep(20, "a.b"), false),
            (deep(79, "a"), true),
            (deep(3, &vec!["a"; 30].join(".")), true),
            (format!("{dotted} = 1\n"), true),
            (format!("x = {}", "[".repeat(65)), true),
            (format!("x = '''\n{}'''\ny = {}", "{".repeat(70), "[".repeat(64)), false),
        ] {
            assert_eq!(is_too_deep(&text), wanted, "{}", &text[..text.len().min(60)]);
        }
    }

    #[test]
    fn half_a_string_ends() {
        for text in ["\"", "'", "\"\"\"", "'''", "\"\\", "x = \"a\\\"", "]]]}", "'''a''"] {
            assert!(!is_too_deep(text), "{text}");
        }
    }
}
