//! Replacing an exact piece of a text by another. Pure: files and plans share it.
//!
//! The model sees every line end as `\n`, so a `\n` in what it looks for matches any line ending, and what it writes
//! takes the ending of the place. Nothing outside the match changes, not by a byte.

use std::ops::Range;

use super::text::Ending;

/// A finished edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edited {
    pub(crate) text: String,
    pub(crate) replaced: usize,
}

/// Replaces `old` by `new` in `text`: the only place where it stands, or all of them.
///
/// # Errors
/// Says what to do instead: nothing found (with a guess why), found several times, nothing to look for.
pub(crate) fn replace(text: &str, old: &str, new: &str, all: bool) -> Result<Edited, String> {
    // Models see files without the mark and may have copied it from elsewhere.
    let old = old.strip_prefix('\u{feff}').unwrap_or(old);
    let new = new.strip_prefix('\u{feff}').unwrap_or(new);
    if old.is_empty() {
        return Err(
            "`old_string` is empty: give the exact text to replace. To create a file or to replace all of \
                    it, use write_file."
                .to_owned(),
        );
    }
    if old == new {
        return Err("`old_string` and `new_string` are the same, so there is nothing to change.".to_owned());
    }
    let found = find(text, old);
    match found.places.len() {
        0 => return Err(not_found(text, old)),
        n if !all && (n > 1 || found.overlapping) => {
            let times = if n > 1 { format!("{n} times") } else { "in overlapping places".to_owned() };
            return Err(format!(
                "`old_string` stands {times} in the file{}. Give more lines around the one you mean, or set \
                 `replace_all` to change them all.",
                lines_of(text, &found.places)
            ));
        }
        _ => {}
    }
    let mut edited = String::with_capacity(text.len() + new.len());
    let mut done = 0;
    for place in &found.places {
        edited.push_str(&text[done..place.start]);
        push_with_endings(&mut edited, new, ending_at(text, place));
        done = place.end;
    }
    edited.push_str(&text[done..]);
    if edited == text {
        return Err(
            "The edit changes nothing: `new_string` differs from the text only in its line endings, which \
                    are kept."
                .to_owned(),
        );
    }
    Ok(Edited { text: edited, replaced: found.places.len() })
}

struct Places {
    places: Vec<Range<usize>>,
    /// Found again half-way through the first one: `aa` in `aaa`.
    overlapping: bool,
}

fn find(text: &str, old: &str) -> Places {
    if old.contains('\r') {
        // Somebody who writes carriage returns may mean exactly these.
        let exact = find_in(text, old);
        if !exact.places.is_empty() {
            return exact;
        }
    }
    let old = old.replace("\r\n", "\n");
    for lone_cr in [LoneCr::Kept, LoneCr::EndsLine] {
        let plain = Plain::of(text, lone_cr);
        let mut found = find_in(&plain.text, &old);
        if !found.places.is_empty() {
            for place in &mut found.places {
                *place = plain.original(place.start)..plain.original(place.end);
            }
            return found;
        }
    }
    Places { places: Vec::new(), overlapping: false }
}

fn find_in(text: &str, old: &str) -> Places {
    let places: Vec<_> = text.match_indices(old).map(|(at, _)| at..at + old.len()).collect();
    let overlapping = places.first().is_some_and(|first| {
        let step = text[first.start..].chars().next().map_or(1, char::len_utf8);
        text[first.start + step..].find(old).is_some_and(|at| first.start + step + at < first.end)
    });
    Places { places, overlapping }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LoneCr {
    Kept,
    EndsLine,
}

/// A text with `\n` for every line ending, and the way back to the positions in the original.
struct Plain {
    text: String,
    /// Where in `text` a `\n` stands for two bytes, in order.
    pairs: Vec<usize>,
}

impl Plain {
    fn of(text: &str, lone_cr: LoneCr) -> Self {
        let mut plain = Self { text: String::with_capacity(text.len()), pairs: Vec::new() };
        let mut rest = text;
        while let Some(at) = rest.find('\r') {
            plain.text.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('\n') {
                plain.pairs.push(plain.text.len());
                plain.text.push('\n');
                rest = after;
            } else {
                plain.text.push(if lone_cr == LoneCr::EndsLine { '\n' } else { '\r' });
            }
        }
        plain.text.push_str(rest);
        plain
    }

    fn original(&self, at: usize) -> usize {
        at + self.pairs.partition_point(|&pair| pair < at)
    }
}

/// The line ending that new text takes at `place`: that of the replaced text, else of its line, else of the one before.
fn ending_at(text: &str, place: &Range<usize>) -> Ending {
    Ending::first(&text[place.clone()])
        .or_else(|| Ending::first(&text[place.end..]))
        .or_else(|| Ending::last(&text[..place.start]))
        .unwrap_or(Ending::Lf)
}

fn push_with_endings(to: &mut String, new: &str, ending: Ending) {
    if new.contains('\r') || ending == Ending::Lf {
        to.push_str(new);
    } else {
        to.push_str(&new.replace('\n', ending.text()));
    }
}

/// ` (lines 3, 9, …)`.
fn lines_of(text: &str, places: &[Range<usize>]) -> String {
    const SHOWN: usize = 5;
    let lines: Vec<String> = places
        .iter()
        .take(SHOWN)
        .map(|place| (text[..place.start].matches('\n').count() + 1).to_string())
        .collect();
    let more = if places.len() > SHOWN { ", …" } else { "" };
    format!(" (at lines {}{more})", lines.join(", "))
}

/// Why the text may not have been found: look-alikes that copying brings about.
fn not_found(text: &str, old: &str) -> String {
    let start =
        "`old_string` was not found in the file; it must match exactly, blanks and line breaks included.";
    let plain = Plain::of(text, LoneCr::Kept).text;
    let old = old.replace("\r\n", "\n");
    let numberless = without_line_numbers(&old);
    if numberless != old && !numberless.trim().is_empty() && plain.contains(&numberless) {
        return format!(
            "{start} It seems to carry the line numbers that read_file puts before each line: leave them out."
        );
    }
    type Fold = fn(&str) -> String;
    let folds: [(Fold, &str); 6] = [
        (without_trailing_blanks, "in blanks at the ends of lines"),
        (with_plain_blanks, "in blanks: tabs, spaces, or no-break spaces"),
        (with_plain_quotes, "in the kind of quotes or dashes: curly in one, straight in the other"),
        (decomposed, "in how accented letters are encoded (composed or decomposed)"),
        (folded, "in blanks, quotes, or the encoding of letters"),
        (str::to_lowercase, "in upper and lower case"),
    ];
    for (fold, difference) in folds {
        let wanted = fold(&old);
        if !wanted.trim().is_empty() && fold(&plain).contains(&wanted) {
            return format!(
                "{start} There is a place that differs only {difference}. Read the lines again and copy them exactly."
            );
        }
    }
    if let Some(line) = first_line_place(&plain, &old) {
        return format!(
            "{start} Its first line stands at line {line}, but what follows differs. Read from there and copy exactly."
        );
    }
    format!("{start} Read the file again, it may have changed or you may mean another file.")
}

/// Where the first line that says something stands alone among the file's lines.
fn first_line_place(text: &str, old: &str) -> Option<usize> {
    let wanted = old.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut found = text.lines().enumerate().filter(|(_, line)| line.trim() == wanted);
    let (index, _) = found.next()?;
    found.next().is_none().then_some(index + 1)
}

fn without_line_numbers(text: &str) -> String {
    map_lines(text, |line| {
        let rest = line.trim_start_matches(' ');
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        match after.strip_prefix(['\t', '→', '|', ':']) {
            Some(content) if after.len() < rest.len() => content,
            _ => line,
        }
    })
}

fn without_trailing_blanks(text: &str) -> String {
    map_lines(text, str::trim_end)
}

fn map_lines<'a>(text: &'a str, each: impl Fn(&'a str) -> &'a str) -> String {
    text.split('\n').map(each).collect::<Vec<_>>().join("\n")
}

/// Every run of blanks inside a line as one space; indentation too.
fn with_plain_blanks(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => {
                plain.truncate(plain.trim_end_matches(' ').len());
                plain.push('\n');
            }
            c if c.is_whitespace() || matches!(c, '\u{200b}' | '\u{2060}' | '\u{feff}') => {
                if !plain.ends_with(' ') {
                    plain.push(' ');
                }
            }
            c => plain.push(c),
        }
    }
    plain
}

fn with_plain_quotes(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{2032}' | '\u{00b4}' | '`' => '\'',
            '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{00ab}' | '\u{00bb}' => '"',
            '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
            c => c,
        })
        .collect::<String>()
        .replace('\u{2026}', "...")
}

/// The Latin letters with the common marks in one form: letter, then mark. Enough for a hint.
fn decomposed(text: &str) -> String {
    let mut letters = String::with_capacity(text.len());
    for c in text.chars() {
        match decompose(c) {
            Some((letter, mark)) => letters.extend([letter, mark]),
            None => letters.push(c),
        }
    }
    letters
}

fn decompose(c: char) -> Option<(char, char)> {
    const MARKS: [(char, &str, &str); 7] = [
        ('\u{300}', "ÀÈÌÒÙàèìòùǸǹ", "AEIOUaeiouNn"),
        ('\u{301}', "ÁÉÍÓÚÝáéíóúýĆćŃńŚśŹźĹĺŔŕ", "AEIOUYaeiouyCcNnSsZzLlRr"),
        ('\u{302}', "ÂÊÎÔÛâêîôûĈĉĜĝĤĥĴĵŜŝŴŵŶŷ", "AEIOUaeiouCcGgHhJjSsWwYy"),
        ('\u{303}', "ÃÑÕãñõĨĩŨũ", "ANOanoIiUu"),
        ('\u{308}', "ÄËÏÖÜäëïöüÿŸ", "AEIOUaeiouyY"),
        ('\u{30a}', "ÅåŮů", "AaUu"),
        ('\u{30c}', "ČčĎďĚěŇňŘřŠšŤťŽž", "CcDdEeNnRrSsTtZz"),
    ];
    if c == 'Ç' || c == 'ç' {
        return Some((if c == 'Ç' { 'C' } else { 'c' }, '\u{327}'));
    }
    MARKS.iter().find_map(|(mark, composed, letters)| {
        let at = composed.chars().position(|candidate| candidate == c)?;
        Some((letters.chars().nth(at)?, *mark))
    })
}

fn folded(text: &str) -> String {
    decomposed(&with_plain_quotes(&with_plain_blanks(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str, old: &str, new: &str) -> String {
        replace(text, old, new, false).unwrap().text
    }

    fn refused(text: &str, old: &str, new: &str) -> String {
        replace(text, old, new, false).unwrap_err()
    }

    #[test]
    fn an_exact_unique_piece_is_replaced() {
        let cases = [
            // text, old, new, result
            ("a b c", "b", "x", "a x c"),
            ("a\nb\nc\n", "b\n", "", "a\nc\n"),
            ("a\nb", "a\nb", "c", "c"),
            ("äöü", "ö", "oe", "äoeü"),
            ("x", "x", "\u{feff}y", "y"),
            ("end", "end", "end\n", "end\n"),
        ];
        for (text, old, new, result) in cases {
            assert_eq!(edit(text, old, new), result, "{text:?} {old:?}");
        }
    }

    #[test]
    fn line_endings_follow_the_place() {
        let cases = [
            // Looked for with LF, found with CRLF, written with CRLF.
            ("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
            // The match has no ending of its own: that of its line.
            ("a\r\nb\r\n", "b", "x\ny", "a\r\nx\r\ny\r\n"),
            // Nor has its line: that of the one before.
            ("a\r\nb", "b", "x\ny", "a\r\nx\r\ny"),
            // Given with carriage returns: exactly as given.
            ("a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n"),
            ("a\nb\n", "a\r\nb", "c", "c\n"),
            ("a\n", "a", "b\r\nc", "b\r\nc\n"),
            // The match ends with, and begins with, half of nothing.
            ("a\r\nb\r\nc", "\nb\n", "\n", "a\r\nc"),
            ("a\r\nb\r\nc", "b\n", "", "a\r\nc"),
            ("one", "one", "one\ntwo", "one\ntwo"),
        ];
        for (text, old, new, result) in cases {
            assert_eq!(edit(text, old, new), result, "{text:?} {old:?}");
        }
    }

    #[test]
    fn ed_04_mixed_endings_change_only_where_matched() {
        let text = "lf\ncrlf\r\ncr\rlf again\ncrlf again\r\n";
        assert_eq!(edit(text, "crlf\n", "CRLF\nnew\n"), "lf\nCRLF\r\nnew\r\ncr\rlf again\ncrlf again\r\n");
        assert_eq!(edit(text, "cr\nlf again", "x\ny"), "lf\ncrlf\r\nx\ry\ncrlf again\r\n");
        assert_eq!(edit(text, "lf again\ncrlf again", "z"), "lf\ncrlf\r\ncr\rz\r\n");
    }

    #[test]
    fn ed_11_empty_old_string_is_refused_whatever_the_text() {
        for text in ["abc", "", "\u{feff}"] {
            for all in [true, false] {
                for old in ["", "\u{feff}"] {
                    let error = replace(text, old, "x", all).unwrap_err();
                    assert!(
                        error.contains("`old_string` is empty") && error.contains("write_file"),
                        "{error}"
                    );
                }
            }
        }
    }

    #[test]
    fn several_places_need_more_context_or_replace_all() {
        let error = refused("a\nx\nb\nx\n", "x", "y");
        assert!(
            error.contains("2 times") && error.contains("lines 2, 4") && error.contains("replace_all"),
            "{error}"
        );
        assert!(refused("aaa", "aa", "b").contains("overlapping"));
        let edited = replace("x\r\nx\nx", "x", "y\nz", true).unwrap();
        assert_eq!((edited.text.as_str(), edited.replaced), ("y\r\nz\r\ny\nz\ny\nz", 3));
    }

    #[test]
    fn an_edit_that_changes_nothing_is_said() {
        assert!(refused("a", "a", "a").contains("same"));
        assert!(refused("a\r\nb", "a\r\nb", "a\nb").contains("line endings"));
    }

    #[test]
    fn ed_16_look_alikes_are_explained() {
        let cases = [
            ("\tlet x = 1;\n", "    let x = 1;\n", "tabs, spaces"),
            ("a\u{a0}b\n", "a b", "no-break"),
            ("say \u{201c}hi\u{201d}\n", "say \"hi\"", "quotes"),
            ("it\u{2019}s\n", "it's", "quotes"),
            ("caf\u{e9}\n", "cafe\u{301}", "accented"),
            ("cafe\u{301}\n", "caf\u{e9}", "accented"),
            ("one\ntwo\n", "     1\tone\n     2\ttwo", "line numbers"),
            ("one  \ntwo\n", "one\ntwo", "ends of lines"),
            ("Hello\n", "hello", "upper and lower"),
            ("\tcaf\u{e9} \u{2019}\n", " cafe\u{301} '", "encoding of letters"),
            ("fn a() {\n    1\n}\n", "fn a() {\n    2\n}\n", "first line stands at line 1"),
            ("something\n", "else", "Read the file again"),
        ];
        for (text, old, hint) in cases {
            let error = refused(text, old, "new");
            assert!(error.contains(hint), "{old:?}: {error}");
        }
    }

    #[test]
    fn ed_17_final_newlines_are_kept_as_they_were() {
        for end in ["", "\n", "\n\n", "\r\n"] {
            assert_eq!(edit(&format!("a\nlast{end}"), "last", "LAST"), format!("a\nLAST{end}"));
        }
    }
}
