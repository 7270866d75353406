//! Making untrusted text safe to draw. Everything that a model, a tool, a file name or another program wrote passes
//! through [`show`] before it reaches a terminal: it leaves no escape sequence, no direction override, no invisible
//! character, so nothing on the screen can pretend to come from agentctl.

/// How many combining marks may follow one character; more are shown as code points.
const MAX_COMBINING: usize = 4;

/// `text` with every control, format and direction character made visible as `<U+XXXX>`; newline and tab stay.
#[must_use]
pub fn show(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut combining = 0;
    for c in text.chars() {
        combining = if is_combining(c) { combining + 1 } else { 0 };
        if matches!(c, '\n' | '\t') || (!is_deceptive(c) && combining <= MAX_COMBINING) {
            shown.push(c);
        } else {
            shown.push_str(&format!("<U+{:04X}>", u32::from(c)));
        }
    }
    shown
}

/// Like [`show`], for a place that holds one line: newlines and tabs become visible too.
#[must_use]
pub fn show_line(text: &str) -> String {
    show(text).replace('\n', "<U+000A>").replace('\t', " ")
}

/// Characters that move the cursor, change the direction of what follows, or cannot be seen.
fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0e}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
            | '\u{f0000}'..='\u{10ffff}'
            | '\u{e000}'..='\u{f8ff}'
    )
}

fn is_combining(c: char) -> bool {
    matches!(
        c,
        '\u{300}'..='\u{36f}'
            | '\u{483}'..='\u{489}'
            | '\u{591}'..='\u{5bd}'
            | '\u{610}'..='\u{61a}'
            | '\u{64b}'..='\u{65f}'
            | '\u{e31}'..='\u{e3a}'
            | '\u{e47}'..='\u{e4e}'
            | '\u{1ab0}'..='\u{1aff}'
            | '\u{1dc0}'..='\u{1dff}'
            | '\u{20d0}'..='\u{20ff}'
            | '\u{fe20}'..='\u{fe2f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_text_is_unchanged() {
        for text in ["", "plain\n\ttext", "日本語 русский العربية", "naïve e\u{301}", "👩 ✔\u{fe0f} →"]
        {
            assert_eq!(show(text), text);
        }
    }

    #[test]
    fn every_control_character_is_made_visible() {
        for code in (0u32..0x20).chain(0x7f..=0x9f) {
            let c = char::from_u32(code).unwrap();
            if matches!(c, '\n' | '\t') {
                continue;
            }
            assert_eq!(show(&c.to_string()), format!("<U+{code:04X}>"));
        }
    }

    #[test]
    fn escapes_bidi_and_invisible_text_cannot_hide() {
        assert_eq!(show("a\u{1b}[2Jb"), "a<U+001B>[2Jb");
        assert_eq!(show("\u{1b}]52;c;eA==\u{7}"), "<U+001B>]52;c;eA==<U+0007>");
        assert_eq!(show("ok\rrm -rf"), "ok<U+000D>rm -rf");
        for c in ['\u{202e}', '\u{2066}', '\u{200b}', '\u{200f}', '\u{feff}', '\u{e0041}', '\u{9b}'] {
            assert!(show(&c.to_string()).starts_with("<U+"), "{c:?} stayed invisible");
        }
    }

    #[test]
    fn floods_of_combining_marks_are_cut() {
        let flood = format!("a{}", "\u{301}".repeat(50));
        let shown = show(&flood);
        assert_eq!(shown.matches('\u{301}').count(), MAX_COMBINING);
        assert!(shown.contains("<U+0301>"));
    }

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(show_line("a\nb\tc"), "a<U+000A>b c");
    }
}
