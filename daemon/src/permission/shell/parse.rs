//! From the text of a command line to its parts, through bash's grammar. Whatever is not looked into is a doubt; nothing is
//! taken to be harmless because it was not understood.

use tree_sitter::{Node, Parser};

use super::cwd::{Cwd, moved};
use super::line::{Direction, Doubt, Line, Part, Redirect, Word};
use super::meaning::{evaluates, is_harmless, is_shell_variable};
use super::part::{base_name, part};
use super::strict::disagrees;
use super::word::{Token, text};
use super::wrapped::{Inner, inner};

/// Longer lines are not looked through.
const MAX_LEN: usize = 10_000;
/// Nodes below nodes, and texts inside texts.
const MAX_DEPTH: u32 = 60;
const MAX_TEXTS: u32 = 4;
/// More commands than anybody reads.
const MAX_PARTS: usize = 200;

/// Takes a command line apart. Total: what it cannot read it doubts.
#[must_use]
pub fn analyse(command: &str) -> Line {
    let mut reader = Reader { line: Line::default(), texts: MAX_TEXTS, quotes: true, began: Cwd::start() };
    reader.text(command, &mut Cwd::start());
    let mut line = reader.line;
    if line.doubt.is_some() {
        // What the grammar did not show may still be forbidden by name.
        line.parts.extend(rough(command));
    }
    if !reader.quotes {
        line.parts.extend(rough(&command.replace(['\'', '"', '\\'], "").replace('`', ";")));
    }
    line
}

/// Commands as a reader sees them who knows no quotes: more than there are, for deny and ask rules only.
fn rough(command: &str) -> Vec<Part> {
    let text: String = command.chars().take(4 * MAX_LEN).collect();
    crate::permission::shell_text::simple_commands(&text)
        .into_iter()
        .filter(|command| !command.words.is_empty())
        .take(MAX_PARTS)
        .map(|command| {
            let tokens: Vec<_> = command.words.iter().map(|word| Token::plain(word)).collect();
            Part { plain: false, proof: None, ..part(&tokens, &Cwd::start()) }
        })
        .collect()
}

/// The same text with each byte that is not ASCII as a dot, so that places in it stay the same. To bash such bytes are
/// characters of words that begin no name, as dots are. The grammar's scanner, which is C, looks up characters in tables
/// that end at 255.
fn plain_bytes(command: &str) -> Vec<u8> {
    command.bytes().map(|byte| if byte.is_ascii() { byte } else { b'.' }).collect()
}

struct Reader {
    line: Line,
    /// How many more texts inside texts are read.
    texts: u32,
    /// What is quoted is known.
    quotes: bool,
    /// Where the shell was when the last command began of what was read last.
    began: Cwd,
}

impl Reader {
    fn doubt(&mut self, doubt: Doubt) {
        self.line.doubt.get_or_insert(doubt);
    }

    fn text(&mut self, command: &str, cwd: &mut Cwd) {
        if command.len() > MAX_LEN {
            return self.doubt(Doubt::TooLong);
        }
        if command.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
            self.doubt(Doubt::Evaluated);
        }
        let mut parser = Parser::new();
        if parser.set_language(&tree_sitter_bash::LANGUAGE.into()).is_err() {
            return self.doubt(Doubt::Unparseable);
        }
        let Some(tree) = parser.parse(plain_bytes(command), None) else {
            return self.doubt(Doubt::Unparseable);
        };
        let root = tree.root_node();
        if root.has_error() {
            self.doubt(Doubt::Unparseable);
        }
        self.node(root, command, cwd, MAX_DEPTH);
    }

    fn node(&mut self, node: Node<'_>, source: &str, cwd: &mut Cwd, depth: u32) {
        if depth == 0 || self.line.parts.len() > MAX_PARTS {
            return self.doubt(Doubt::TooLong);
        }
        if node.is_error() || node.is_missing() || disagrees(node, source) {
            self.doubt(Doubt::Unparseable);
            self.quotes = false;
        }
        let entered = cwd.clone();
        match node.kind() {
            "command" => self.command(node, source, cwd, depth),
            "list" => self.list(node, source, cwd, depth),
            "file_redirect" => self.redirect(node, source, cwd, depth),
            // What happens inside stays inside.
            "pipeline" => {
                let mut cursor = node.walk();
                for child in node.children(&mut cursor).collect::<Vec<_>>() {
                    self.node(child, source, &mut cwd.clone(), depth - 1);
                    // In `cd a && b >f | c` the grammar takes all before the bar for one command.
                    if child.is_named() {
                        *cwd = self.began.clone();
                    }
                }
                self.began = cwd.clone();
            }
            "subshell" | "command_substitution" | "process_substitution" => {
                if text(node, source).starts_with("$((") || text(node, source).starts_with("((") {
                    self.doubt(Doubt::Construct);
                }
                self.children(node, source, &mut cwd.clone(), depth);
            }
            // Whether their bodies run is not known.
            "if_statement" | "elif_clause" | "else_clause" | "for_statement" | "while_statement"
            | "do_group" | "case_statement" | "case_item" => {
                if node.kind() == "for_statement" {
                    if text(node, source).starts_with("select") {
                        self.doubt(Doubt::Construct);
                    }
                    let variable = node.child_by_field_name("variable");
                    self.assigned(variable.map_or("", |variable| text(variable, source)));
                }
                let mut inside = cwd.clone();
                self.children(node, source, &mut inside, depth);
                if inside != *cwd {
                    // The next round would begin there.
                    if matches!(node.kind(), "for_statement" | "while_statement") {
                        self.doubt(Doubt::Construct);
                    }
                    *cwd = Cwd(Word::Unknown);
                }
            }
            "compound_statement" => {
                if text(node, source).starts_with("((") {
                    self.doubt(Doubt::Construct);
                }
                self.children(node, source, cwd, depth);
            }
            "variable_assignment" => {
                let (name, _) = assignment(node, source);
                self.assigned(&name);
                self.children(node, source, cwd, depth);
            }
            "expansion" => {
                // `${x}`, and `${x:-word}` and its kin; the rest transforms, indexes or computes.
                let raw = text(node, source);
                let plain = raw.trim_start_matches("${").trim_end_matches('}');
                let name = plain.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
                let operator = name.trim_start_matches(':');
                if !(operator.is_empty() && name.is_empty() || operator.starts_with(['-', '+', '?'])) {
                    self.doubt(Doubt::Construct);
                }
                // Quotes in its word mean something else between double quotes, which the grammar does not tell apart.
                if raw.contains(['\'', '"', '\\', '`']) {
                    self.doubt(Doubt::Evaluated);
                    self.quotes = false;
                }
                self.children(node, source, cwd, depth);
            }
            "redirected_statement" => self.redirected(node, source, cwd, depth),
            // What comes after it runs if a `cd` in it did not work.
            "negated_command" => {
                self.children(node, source, cwd, depth);
                if entered != *cwd {
                    *cwd = Cwd(Word::Unknown);
                }
            }
            "program"
            | "concatenation"
            | "command_name"
            | "string"
            | "heredoc_body"
            | "heredoc_redirect"
            | "herestring_redirect"
            | "variable_assignments" => {
                self.children(node, source, cwd, depth);
            }
            "word"
            | "string_content"
            | "number"
            | "heredoc_content"
            | "brace_expression"
            | "extglob_pattern"
            | "regex"
            | "raw_string"
            | "comment"
            | "simple_expansion"
            | "variable_name"
            | "special_variable_name"
            | "heredoc_start"
            | "heredoc_end"
            | "file_descriptor" => {}
            kind if !node.is_named() => {
                if matches!(kind, "((" | "[[" | "[" | "$[" | "coproc" | "function") {
                    self.doubt(Doubt::Construct);
                }
            }
            "ansi_c_string" | "translated_string" => self.doubt(Doubt::Evaluated),
            _ => {
                self.doubt(Doubt::Construct);
                self.children(node, source, cwd, depth);
            }
        }
        if !matches!(node.kind(), "list" | "pipeline" | "redirected_statement" | "negated_command") {
            self.began = entered;
        }
    }

    /// The files are opened before the command runs, which may be a `cd`; of a list they are its last command's.
    fn redirected(&mut self, node: Node<'_>, source: &str, cwd: &mut Cwd, depth: u32) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let (redirects, bodies): (Vec<_>, Vec<_>) =
            children.into_iter().partition(|child| child.kind().ends_with("_redirect"));
        let mut began = cwd.clone();
        for child in bodies {
            self.node(child, source, cwd, depth - 1);
            began = self.began.clone();
        }
        for child in redirects {
            let mut inside = began.clone();
            self.node(child, source, &mut inside, depth - 1);
            // The rest of a here-document's line.
            if inside != began {
                *cwd = Cwd(Word::Unknown);
            }
        }
        self.began = began;
    }

    fn children(&mut self, node: Node<'_>, source: &str, cwd: &mut Cwd, depth: u32) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let sequence = matches!(
            node.kind(),
            "program" | "compound_statement" | "do_group" | "subshell" | "heredoc_redirect"
        );
        for child in children {
            let before = cwd.clone();
            self.node(child, source, cwd, depth - 1);
            // The next command comes also if this one failed to go there.
            if sequence && child.is_named() && before != *cwd {
                *cwd = Cwd(Word::Unknown);
            }
        }
    }

    /// `a && b`, `a || b`: only after `&&` it is known that a `cd` has worked.
    fn list(&mut self, node: Node<'_>, source: &str, cwd: &mut Cwd, depth: u32) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let mut before = cwd.clone();
        for child in children {
            if child.is_named() {
                before = cwd.clone();
                self.node(child, source, cwd, depth - 1);
            } else if child.kind() != "&&" && before != *cwd {
                *cwd = Cwd(Word::Unknown);
            }
        }
        self.began = before;
    }

    fn assigned(&mut self, name: &str) {
        if !is_shell_variable(name) {
            self.doubt(Doubt::Assignment);
        }
    }

    fn redirect(&mut self, node: Node<'_>, source: &str, cwd: &mut Cwd, depth: u32) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let operator = children.iter().find(|child| !child.is_named()).map_or("", |child| child.kind());
        // `{PATH}> file` sets a variable.
        if source.get(..node.start_byte()).is_some_and(|before| before.ends_with('}')) {
            self.doubt(Doubt::Assignment);
        }
        let directions: &[Direction] = match operator {
            "<" => &[Direction::Read],
            "<>" => &[Direction::Read, Direction::Write],
            _ => &[Direction::Write],
        };
        let mut cursor = node.walk();
        let targets: Vec<_> = node.children_by_field_name("destination", &mut cursor).collect();
        if targets.len() > 1 {
            // Only the first is: the others are words of the command, which the grammar has taken off it.
            self.doubt(Doubt::Unparseable);
        }
        for target in targets {
            let token = Token::of(target, source);
            let copies = token.known
                && (token.value == "-"
                    || token.value.trim_end_matches('-').bytes().all(|b| b.is_ascii_digit()));
            let copies = copies && matches!(operator, ">&" | "<&" | ">&-" | "<&-");
            let directions = match operator {
                _ if copies => &[],
                // `>& file` is a file.
                ">&" => &[Direction::Write][..],
                "<&" => &[Direction::Read][..],
                _ => directions,
            };
            if token.known && token.value.starts_with("/dev/tcp/") || token.value.starts_with("/dev/udp/") {
                self.doubt(Doubt::Construct);
            }
            if target.kind() != "process_substitution" && !is_stream(&token) {
                // bash takes quotes off the name behind `>&` in a way of its own.
                let odd = token.pattern || operator.ends_with('&') && token.raw != token.value;
                let word = if odd { Word::Unknown } else { token.path(cwd) };
                for direction in directions {
                    self.line.redirects.push(Redirect { target: word.clone(), direction: *direction });
                }
            }
            self.node(target, source, cwd, depth - 1);
        }
    }

    fn command(&mut self, node: Node<'_>, source: &str, cwd: &mut Cwd, depth: u32) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let mut words: Vec<Token> = Vec::new();
        let mut prefix = String::new();
        for child in children {
            match child.kind() {
                "variable_assignment" => {
                    let (name, value) = assignment(child, source);
                    // A word of its own in front of the command: the environment of that command.
                    if !is_harmless(&name, &value) {
                        self.doubt(Doubt::Assignment);
                        prefix.push_str(text(child, source));
                        prefix.push(' ');
                    }
                    self.children(child, source, cwd, depth);
                }
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {
                    self.node(child, source, cwd, depth - 1);
                }
                // A subshell as an argument is what bash calls an error.
                "subshell" => {
                    self.doubt(Doubt::Unparseable);
                    self.node(child, source, cwd, depth - 1);
                }
                _ => {
                    let token = Token::of(child, source);
                    if token.raw.contains('[') && (token.raw.contains("$(") || token.raw.contains('`')) {
                        self.doubt(Doubt::Evaluated);
                    }
                    words.push(token);
                    self.node(child, source, cwd, depth - 1);
                }
            }
        }
        self.simple(&words, &prefix, cwd);
    }

    /// One command with its words.
    fn simple(&mut self, words: &[Token], prefix: &str, cwd: &mut Cwd) {
        let Some(name) = words.first() else { return };
        // `time A=1 make`, `time ! make`: to the grammar these are words.
        if name.raw == "!" || name.raw.contains('=') {
            self.doubt(Doubt::Assignment);
            return self.simple(&words[1..], prefix, cwd);
        }
        if !name.known || name.pattern || name.home || name.value.is_empty() {
            self.doubt(Doubt::Program);
        }
        let program = base_name(&name.value);
        if evaluates(program, words) {
            self.doubt(Doubt::Construct);
        }
        let mut made = part(words, cwd);
        if !prefix.is_empty() {
            made.text = format!("{prefix}{}", made.text);
            made.forms.push(made.text.clone());
        }
        if matches!(program, "cd" | "pushd" | "popd") {
            made.changes_shell = true;
            *cwd = moved(program, words, cwd);
        }
        self.line.parts.push(made);
        for inner in inner(words) {
            match inner {
                Inner::Words(words) => {
                    let mut inside = cwd.clone();
                    self.simple(&words, "", &mut inside);
                    // `time cd x`, `command cd x`.
                    if inside != *cwd {
                        *cwd = Cwd(Word::Unknown);
                    }
                }
                Inner::Text(text) if self.texts > 0 => {
                    self.texts -= 1;
                    self.text(&text, &mut cwd.clone());
                }
                Inner::Text(_) => self.doubt(Doubt::TooLong),
                Inner::Unknown => self.doubt(Doubt::Program),
            }
        }
    }
}

/// What opens nothing, or nothing that anybody keeps.
fn is_stream(token: &Token) -> bool {
    matches!(token.value.as_str(), "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr")
}

fn assignment(node: Node<'_>, source: &str) -> (String, String) {
    let name = node.child_by_field_name("name").map_or("", |name| text(name, source));
    let value = node.child_by_field_name("value").map_or("", |value| text(value, source));
    (name.to_owned(), value.to_owned())
}
