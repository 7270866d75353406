//! Making untrusted text safe to draw. Everything that a model, a tool, a file name or another program wrote passes
//! through [`show`] before it reaches a terminal: it leaves no escape sequence, no direction override, no invisible
//! character, so nothing on the screen can pretend to come from agentctl.

/// How many combining marks may follow one character; more are shown as code points.
const MAX_COMBINING: usize = 4;

/// Joins two emoji into one picture. Anywhere else it is invisible.
const JOINER: char = '\u{200d}';

/// How many joiners one picture may have; the longest in use have three.
const MAX_JOINERS: usize = 4;

/// `text` with every control, format and direction character made visible as `<U+XXXX>`; newline and tab stay, and so
/// does what joins two emoji.
#[must_use]
pub fn show(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut combining = 0;
    // Whether an emoji stands before `c`, and how many joiners its picture has so far.
    let (mut after_emoji, mut joiners) = (false, 0);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        combining = if is_combining(c) { combining + 1 } else { 0 };
        let joins = c == JOINER
            && after_emoji
            && joiners < MAX_JOINERS
            && chars.peek().is_some_and(|next| is_emoji(*next));
        if joins {
            joiners += 1;
        } else if !(is_emoji(c) || c == EMOJI_STYLE) {
            joiners = 0;
        }
        after_emoji = is_emoji(c) || (after_emoji && c == EMOJI_STYLE);
        if joins || matches!(c, '\n' | '\t') || (!is_deceptive(c) && combining <= MAX_COMBINING) {
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

/// Asks for the coloured picture of the character before it.
const EMOJI_STYLE: char = '\u{fe0f}';

/// Characters that are drawn as pictures, skin tones included.
fn is_emoji(c: char) -> bool {
    matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{2600}'..='\u{27bf}'
        | '\u{2b00}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}')
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
    fn joined_emoji_stay_one_picture_and_joiners_hide_nowhere_else() {
        for text in
            ["👩\u{200d}🔬", "👩🏽\u{200d}🔬", "🏳\u{fe0f}\u{200d}🌈", "👨\u{200d}👩\u{200d}👧\u{200d}👦!"]
        {
            assert_eq!(show(text), text);
        }
        for text in [
            "a\u{200d}b",
            "\u{200d}🔬",
            "👩\u{200d}",
            "👩\u{200d}x",
            "👩\u{200d}\u{200d}🔬",
            "a\u{fe0f}\u{200d}🌈",
        ] {
            assert!(show(text).contains("<U+200D>"), "{text:?}");
        }
        let chain = "👩\u{200d}".repeat(50) + "👩";
        assert!(show(&chain).contains("<U+200D>"), "a picture without end was taken");
    }

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(show_line("a\nb\tc"), "a<U+000A>b c");
    }
}
