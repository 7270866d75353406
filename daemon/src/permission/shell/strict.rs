//! Where the grammar and bash may read a text differently: what a node would have to look like for both to agree.
//!
//! The grammar is lenient where bash is not: it joins lines, finds comments inside of words, and takes for letters what bash
//! runs. Each check is about one node and its children, and closed: what it does not expect is a disagreement.

use tree_sitter::Node;

use super::word::text;

/// Whether bash may read this node differently.
pub(super) fn disagrees(node: Node<'_>, source: &str) -> bool {
    let raw = text(node, source);
    let literal = matches!(node.kind(), "raw_string" | "comment" | "heredoc_body" | "heredoc_content");
    if node.child_count() == 0 && !literal && joins_lines(raw) {
        return true;
    }
    match node.kind() {
        "word" | "number" | "variable_name" | "extglob_pattern" | "regex" | "brace_expression" => {
            breaks_word(raw)
        }
        "raw_string" => {
            raw.len() < 2 || !raw.starts_with('\'') || raw.find_from(1, '\'') != Some(raw.len() - 1)
        }
        "string" => ends_early(node, source),
        "string_content" | "heredoc_content" => substitutes(raw),
        "comment" => !begins_comment(source, node.start_byte()) || raw.contains('\n'),
        "command_substitution" if raw.starts_with('`') => {
            // A backslash in it is taken off once before the text is read.
            raw.len() < 3 || raw.contains('\\') || raw.find_from(1, '`') != Some(raw.len() - 1)
        }
        // `$`, and a name on the next line.
        "simple_expansion" => raw.chars().any(|c| c.is_whitespace() || c == '\\'),
        "expansion" => has_gap(node, source, &[' ']),
        "heredoc_redirect" => heredoc(node, source),
        // `a$"b"`: bash looks the text up, or reads escapes in it.
        "$" => {
            node.parent().is_none_or(|parent| parent.kind() != "string")
                && source.get(node.end_byte()..).unwrap_or_default().starts_with(['\'', '"'])
        }
        "command" => has_gap(node, source, &[' ', '\t']) || joins_words(node, source),
        "command_name"
        | "concatenation"
        | "file_redirect"
        | "herestring_redirect"
        | "redirected_statement"
        | "negated_command"
        | "variable_assignment"
        | "variable_assignments" => has_gap(node, source, &[' ', '\t']),
        "program"
        | "list"
        | "pipeline"
        | "subshell"
        | "compound_statement"
        | "if_statement"
        | "elif_clause"
        | "else_clause"
        | "for_statement"
        | "while_statement"
        | "do_group"
        | "case_statement"
        | "case_item"
        | "command_substitution"
        | "process_substitution" => has_gap(node, source, &[' ', '\t', '\n']),
        // Their texts are looked at where they are taken apart.
        _ => false,
    }
}

trait FindFrom {
    fn find_from(&self, start: usize, wanted: char) -> Option<usize>;
}

impl FindFrom for str {
    fn find_from(&self, start: usize, wanted: char) -> Option<usize> {
        self.get(start..)?.find(wanted).map(|at| at + start)
    }
}

/// The characters of a text that no backslash is before.
fn bare(text: &str) -> impl Iterator<Item = (usize, char)> + '_ {
    let mut chars = text.char_indices();
    std::iter::from_fn(move || {
        loop {
            match chars.next()? {
                (_, '\\') => drop(chars.next()),
                found => return Some(found),
            }
        }
    })
}

/// Whether a word, which has no quotes, would end somewhere in it.
fn breaks_word(word: &str) -> bool {
    bare(word).any(|(_, c)| c.is_ascii_whitespace() || "|&;()<>'\"`".contains(c))
        || word.ends_with('\\') && odd(word)
}

/// Whether a text ends with a backslash that stands for itself alone.
fn odd(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Whether bash finds a substitution in a text that the grammar took for letters.
fn substitutes(text: &str) -> bool {
    bare(text).any(|(at, c)| c == '`' || c == '$' && text[at + 1..].starts_with('('))
}

/// Whether a quote stands in a text between double quotes, outside of what is substituted there.
fn ends_early(node: Node<'_>, source: &str) -> bool {
    let mut cursor = node.walk();
    let mut end = node.start_byte() + 1;
    let mut own = String::new();
    for child in node.named_children(&mut cursor).filter(|child| child.kind() != "string_content") {
        own.push_str(source.get(end..child.start_byte()).unwrap_or_default());
        // What is substituted keeps a backslash before it from reaching what is behind it.
        own.push('x');
        end = child.end_byte();
    }
    own.push_str(source.get(end..node.end_byte().saturating_sub(1)).unwrap_or_default());
    let raw = text(node, source);
    !raw.starts_with('"')
        || !raw.ends_with('"')
        || raw.len() < 2
        || odd(&own)
        || joins_lines(&own)
        || bare(&own).any(|(_, c)| c == '"')
}

/// Whether bash sees a comment begin here: where a word could.
fn begins_comment(source: &str, at: usize) -> bool {
    let before = source.get(..at).unwrap_or_default();
    let Some(last) = before.chars().next_back() else { return true };
    let start = &before[..before.len() - last.len_utf8()];
    matches!(last, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(') && !odd(start)
}

/// bash takes a backslash and the end of a line out before it reads further, also out of `$(`, `&&`, and the word that ends
/// a here-document.
fn joins_lines(text: &str) -> bool {
    text.contains("\\\n")
}

/// Whether something other than `blanks` and joined lines stands between the children of a node, or lines are joined with no
/// blank beside.
fn has_gap(node: Node<'_>, source: &str, blanks: &[char]) -> bool {
    let mut cursor = node.walk();
    let mut end = node.start_byte();
    let strange = |from: usize, to: usize| {
        let gap = source.get(from..to).unwrap_or_default();
        let rest = gap.replace("\\\n", "");
        rest.is_empty() != gap.is_empty() || rest.chars().any(|c| !blanks.contains(&c))
    };
    for child in node.children(&mut cursor) {
        if strange(end, child.start_byte()) {
            return true;
        }
        end = child.end_byte();
    }
    node.child_count() > 0 && strange(end, node.end_byte())
}

/// Whether two words of a command have no blank between them: bash makes one of them. A redirect ends a word before it.
fn joins_words(node: Node<'_>, source: &str) -> bool {
    let mut cursor = node.walk();
    let children: Vec<_> = node.children(&mut cursor).collect();
    children.windows(2).any(|pair| {
        let gap = source.get(pair[0].end_byte()..pair[1].start_byte()).unwrap_or_default();
        !pair[1].kind().ends_with("_redirect") && gap.replace("\\\n", "").is_empty()
    })
}

/// Not all that bash runs in a here-document is a node of the grammar, and where its text ends has to be beyond doubt: one
/// word, the same at both ends, and on no line between.
fn heredoc(node: Node<'_>, source: &str) -> bool {
    let mut cursor = node.walk();
    let children: Vec<_> = node.children(&mut cursor).collect();
    let of_kind =
        |kind: &str| children.iter().find(|child| child.kind() == kind).map(|child| text(*child, source));
    let (Some(start), Some(end)) = (of_kind("heredoc_start"), of_kind("heredoc_end")) else { return true };
    let body = of_kind("heredoc_body").unwrap_or_default();
    let quoted = ['\'', '"']
        .iter()
        .find_map(|quote| start.strip_prefix(*quote).and_then(|rest| rest.strip_suffix(*quote)));
    let word = quoted.unwrap_or(start);
    let simple = !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let earlier = body.lines().any(|line| line.trim_start_matches('\t').trim_end() == word);
    // The rest of the opener's line may hold more words of the command.
    let arguments = node.child_by_field_name("argument").is_some();
    !simple
        || end.trim_start_matches('\t') != word
        || earlier
        || arguments
        || quoted.is_none() && (body.contains('`') || body.contains("$(") || joins_lines(body))
}
