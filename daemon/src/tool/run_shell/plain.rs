//! Terminal output as plain text: no colours, no redrawn progress lines.

/// Removes escape sequences, keeps of each overprinted line what a person would have seen last, and drops other control
/// characters except tab and line feed.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Where the current line starts in `out`.
    let mut line = 0;
    // A carriage return overprints only if something follows it on the line.
    let mut returned = false;
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_control_sequence(&mut rest),
            '\r' => returned = true,
            '\n' => {
                out.push('\n');
                line = out.len();
                returned = false;
            }
            '\u{8}' if out.len() > line => drop(out.pop()),
            c if c.is_control() && c != '\t' => {}
            c => {
                if returned {
                    out.truncate(line);
                    returned = false;
                }
                out.push(c);
            }
        }
    }
    out
}

/// After ESC.
fn skip_escape(rest: &mut std::str::Chars<'_>) {
    match peek(rest) {
        Some('[') => {
            rest.next();
            skip_control_sequence(rest);
        }
        // A string, such as a window title or a link target: ends with BEL or ESC \.
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
        // Some intermediates and one final character: a character set, a reset.
        Some(_) => {
            while let Some(' '..='/') = peek(rest) {
                rest.next();
            }
            if let Some('0'..='~') = peek(rest) {
                rest.next();
            }
        }
        None => {}
    }
}

fn skip_control_sequence(rest: &mut std::str::Chars<'_>) {
    while let Some(' '..='?') = peek(rest) {
        rest.next();
    }
    if let Some('@'..='~') = peek(rest) {
        rest.next();
    }
}

/// A string that does not end on its line is none: then only its introducer is dropped, so that one stray byte cannot
/// hide everything after it.
fn skip_string(rest: &mut std::str::Chars<'_>) {
    rest.next();
    let text = rest.as_str();
    let line = text.find('\n').map_or(text, |end| &text[..end]);
    let end = match (line.find('\u{7}'), line.find("\u{1b}\\")) {
        (Some(bell), Some(escape)) if escape < bell => escape + 2,
        (Some(bell), _) => bell + 1,
        (None, Some(escape)) => escape + 2,
        (None, None) => return,
    };
    *rest = text[end..].chars();
}

fn peek(rest: &std::str::Chars<'_>) -> Option<char> {
    rest.clone().next()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cleaned_output_reads_like_the_screen_did() {
        for (raw, expected) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}[1;31merror\u{1b}[0m: x", "error: x"),
            ("\u{1b}[?25l\u{1b}[2Kdone\u{1b}(B\u{1b}=", "done"),
            ("\u{9b}1mx", "x"),
            ("\u{1b}]0;title\u{7}shown", "shown"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\!", "link!"),
            ("\u{1b}]0;no end\nnext", "0;no end\nnext"),
            ("10%\r50%\r100%\n", "100%\n"),
            ("a\r\nb\r\n", "a\nb\n"),
            ("kept\r", "kept"),
            ("kept\r\u{1b}[K\n", "kept\n"),
            ("abc\u{8}\u{8}x", "ax"),
            ("\n\u{8}x", "\nx"),
            ("a\0b\u{7}c\u{7f}d", "abcd"),
            ("cut \u{1b}[3", "cut "),
            ("cut \u{1b}", "cut "),
            ("\u{4e2d}\u{1f600}", "\u{4e2d}\u{1f600}"),
        ] {
            assert_eq!(plain(raw), expected, "{raw:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_but_text_comes_out(raw in "[\u{1b}\u{9b}\u{7}\u{8}\r\n\t\\[\\]P;m0a\u{4e2d}\0]{0,60}") {
            let text = plain(&raw);
            prop_assert!(text.chars().all(|c| !c.is_control() || c == '\n' || c == '\t'), "{:?}", text);
            prop_assert_eq!(plain(&text), text);
        }
    }
}
