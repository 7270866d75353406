//! Rust text reduced to what the rules look at: no comments, no literals, no test code.

use std::ops::Range;

/// The text with comments and the insides of literals blanked. Lines keep their numbers.
pub(super) fn without_comments_and_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut kept = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => comment_end(bytes, at),
            b'"' => string_end(bytes, at + 1),
            b'r' if !is_word_before(bytes, at) => raw_string_end(bytes, at).unwrap_or(at),
            b'\'' => char_end(bytes, at).unwrap_or(at),
            _ => at,
        };
        if end == at {
            at += 1;
        } else {
            blank(&mut kept, at..end);
            at = end;
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The text without items under `#[cfg(test)]`, and the names of modules declared there whose text is another file.
pub(super) fn without_tests(text: &str) -> (String, Vec<String>) {
    const ATTRIBUTE: &str = "#[cfg(test)]";
    let mut kept = text.as_bytes().to_vec();
    let mut modules = Vec::new();
    let mut from = 0;
    while let Some(found) = text[from..].find(ATTRIBUTE) {
        let start = from + found;
        let body = start + ATTRIBUTE.len();
        let stop = text[body..].find([';', '{']).map_or(text.len(), |offset| body + offset);
        let end =
            if text[stop..].starts_with('{') { closing_brace(text, stop) } else { text.len().min(stop + 1) };
        if text[stop..].starts_with(';') {
            let mut words = text[body..stop].split_whitespace().rev();
            if let (Some(name), Some("mod")) = (words.next(), words.next()) {
                modules.push(name.to_owned());
            }
        }
        blank(&mut kept, start..end);
        from = end;
    }
    (String::from_utf8_lossy(&kept).into_owned(), modules)
}

/// Every path that the text names, `use` trees spelled out, with the line it stands on.
pub(super) fn paths(text: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    let mut at = 0;
    while let Some(start) = next_word(text, at) {
        let end = path_end(text, start);
        let path = plain(&text[start..end]);
        at = end;
        if path == "use" {
            let stop = text[end..].find(';').map_or(text.len(), |offset| end + offset);
            expand(&plain(&text[end..stop]), "", &mut |path| paths.push((line_of(text, start), path)));
            at = stop;
        } else {
            paths.push((line_of(text, start), path));
        }
    }
    paths
}

pub(super) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count()
}

/// `a::{b, c::{d}}` as `a::b` and `a::c::d`.
fn expand(tree: &str, before: &str, found: &mut impl FnMut(String)) {
    let Some(open) = tree.find('{') else {
        let path = format!("{before}{tree}");
        found(path.trim_end_matches("::").to_owned());
        return;
    };
    let before = format!("{before}{}", &tree[..open]);
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let mut depth = 0;
    let mut start = 0;
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&inner[start..at], &before, found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].is_empty() {
        expand(&inner[start..], &before, found);
    }
}

/// A piece of a path or of a `use` tree without blanks and without new names.
fn plain(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut plain = String::new();
    while let Some(word) = words.next() {
        if word == "as" {
            // What the name is changed to does not matter, but what ends it does.
            plain.extend(words.next().unwrap_or_default().chars().filter(|c| matches!(c, ',' | '{' | '}')));
        } else {
            plain.push_str(word);
        }
    }
    plain
}

fn next_word(text: &str, from: usize) -> Option<usize> {
    text[from..].char_indices().find(|(_, c)| is_word(*c)).map(|(offset, _)| from + offset)
}

/// Where a path ends: words joined by `::`, blanks between them allowed.
fn path_end(text: &str, start: usize) -> usize {
    let word_end = |at: usize| text[at..].find(|c| !is_word(c)).map_or(text.len(), |offset| at + offset);
    let mut end = word_end(start);
    loop {
        let Some(rest) = text[end..].trim_start().strip_prefix("::") else { return end };
        let rest = rest.trim_start();
        if !rest.starts_with(is_word) {
            return end;
        }
        end = word_end(text.len() - rest.len());
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_word_before(bytes: &[u8], at: usize) -> bool {
    let is_word = |at: usize| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_';
    match at.checked_sub(1) {
        None => false,
        // `br"…"` is a raw string too.
        Some(before) if bytes[before] == b'b' => before.checked_sub(1).is_some_and(is_word),
        Some(before) => is_word(before),
    }
}

fn blank(text: &mut [u8], range: Range<usize>) {
    for byte in &mut text[range] {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |offset| at + offset)
}

fn comment_end(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = at + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let found = bytes[open + 1..].windows(end.len()).position(|window| window == end);
    Some(found.map_or(bytes.len(), |offset| open + 1 + offset + end.len()))
}

/// The end of a character literal; a lifetime is none.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        let close = bytes.get(at + 3..)?.iter().position(|byte| *byte == b'\'')?;
        return Some(at + 3 + close + 1);
    }
    let text = std::str::from_utf8(bytes.get(at + 1..)?).ok()?;
    let len = text.chars().next()?.len_utf8();
    (bytes.get(at + 1 + len) == Some(&b'\'')).then_some(at + len + 2)
}

fn closing_brace(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (offset, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return open + offset + 1;
        }
    }
    text.len()
}

#[test]
fn comments_and_literals_are_blanked() {
    let text = "a // b\n/* c /* d */ e */ f \"g \\\" h\" 'i' '\\'' r#\"j \" k\"# br\"l\" 'm x\n'\\u{1f}' n";
    let kept: String = without_comments_and_literals(text).split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(kept, "a f b 'm x n");
    assert_eq!(without_comments_and_literals(text).lines().count(), text.lines().count());
}

#[test]
fn test_items_are_cut_and_test_files_named() {
    let text = "use a;\n#[cfg(test)]\nmod tests { fn f() { b } }\n#[cfg(test)]\nmod table;\n#[cfg(test)]\nuse c::{d};\nfn e() {}";
    let (kept, modules) = without_tests(text);
    assert_eq!(modules, ["table"]);
    for gone in ["tests", "b", "table", "d"] {
        assert!(!kept.split(|c| !is_word(c)).any(|word| word == gone), "{gone} in {kept}");
    }
    assert!(kept.contains("use a;") && kept.contains("fn e() {}"));
}

#[test]
fn use_trees_are_spelled_out() {
    let text = "use std::{\n    fs as files,\n    io::{self, Read},\n};\nfn f() { tokio :: fs::read(x.y); }";
    let found: Vec<String> = paths(text).into_iter().map(|(_, path)| path).collect();
    for path in ["std::fs", "std::io::self", "std::io::Read", "tokio::fs::read"] {
        assert!(found.iter().any(|found| found == path), "{path} not in {found:?}");
    }
    assert_eq!(paths(text).iter().find(|(_, path)| path == "tokio::fs::read").unwrap().0, 5);
}
