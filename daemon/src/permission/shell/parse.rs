//! From the text of a command line to its parts, through bash's grammar. Whatever is not looked into is a doubt; nothing is
//! taken to be harmless because it was not understood.

use tree_sitter::{Node, Parser};

use super::line::{Direction, Doubt, Line, Part, Redirect, Word};
use super::readonly::proof;
use super::word::{Cwd, Token, text};
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
    let mut reader = Reader { line: Line::default(), texts: MAX_TEXTS };
    reader.text(command, &mut Cwd::start());
    let mut line = reader.line;
    if line.doubt.is_some() {
        // What the grammar did not show may still be forbidden by name.
        line.parts.extend(rough(command));
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
        if node.is_error() || node.is_missing() {
            self.doubt(Doubt::Unparseable);
        }
        match node.kind() {
            "command" => self.command(node, source, cwd, depth),
            "list" => self.list(node, source, cwd, depth),
            "file_redirect" => self.redirect(node, source, cwd, depth),
            // What happens inside stays inside.
            "subshell" | "command_substitution" | "process_substitution" | "pipeline" => {
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
                    self.assigned(variable.map_or("", |variable| text(variable, source)), "");
                }
                let mut inside = cwd.clone();
                self.children(node, source, &mut inside, depth);
                if !inside.is_start() {
                    *cwd = Cwd::At(Word::Unknown);
                }
            }
            "compound_statement" => {
                if text(node, source).starts_with("((") {
                    self.doubt(Doubt::Construct);
                }
                self.children(node, source, cwd, depth);
            }
            "variable_assignment" => {
                let (name, value) = assignment(node, source);
                self.assigned(&name, &value);
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
                self.children(node, source, cwd, depth);
            }
            "heredoc_redirect" => {
                self.heredoc(node, source);
                self.children(node, source, cwd, depth);
            }
            "program"
            | "redirected_statement"
            | "negated_command"
            | "concatenation"
            | "command_name"
            | "string"
            | "heredoc_body"
            | "herestring_redirect"
            | "variable_assignments" => {
                self.children(node, source, cwd, depth);
            }
            "word"
            | "raw_string"
            | "string_content"
            | "number"
            | "comment"
            | "simple_expansion"
            | "variable_name"
            | "special_variable_name"
            | "heredoc_start"
            | "heredoc_content"
            | "heredoc_end"
            | "file_descriptor"
            | "brace_expression"
            | "extglob_pattern"
            | "regex" => {}
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
    }

    fn children(&mut self, node: Node<'_>, source: &str, cwd: &mut Cwd, depth: u32) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let sequence = matches!(node.kind(), "program" | "compound_statement" | "do_group" | "subshell");
        for child in children {
            let before = cwd.clone();
            self.node(child, source, cwd, depth - 1);
            // The next command comes also if this one failed to go there.
            if sequence && child.is_named() && !same(&before, cwd) {
                *cwd = Cwd::At(Word::Unknown);
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
            } else if child.kind() != "&&" && !same(&before, cwd) {
                *cwd = Cwd::At(Word::Unknown);
            }
        }
    }

    /// Not all that bash runs in a here-document is a node of the grammar.
    fn heredoc(&mut self, node: Node<'_>, source: &str) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let of_kind =
            |kind: &str| children.iter().find(|child| child.kind() == kind).map(|child| text(*child, source));
        let literal = of_kind("heredoc_start").is_some_and(|start| start.contains(['\'', '"', '\\']));
        if !literal && of_kind("heredoc_body").is_none_or(|body| body.contains('`') || body.contains("$(")) {
            self.doubt(Doubt::Evaluated);
        }
    }

    fn assigned(&mut self, name: &str, value: &str) {
        if value.contains(['$', '`']) && !is_shell_variable(name)
            || !(is_harmless(name) || is_shell_variable(name))
        {
            self.doubt(Doubt::Assignment);
        }
    }

    fn redirect(&mut self, node: Node<'_>, source: &str, cwd: &mut Cwd, depth: u32) {
        let mut cursor = node.walk();
        let children: Vec<_> = node.children(&mut cursor).collect();
        let operator = children.iter().find(|child| !child.is_named()).map_or("", |child| child.kind());
        let directions: &[Direction] = match operator {
            "<" => &[Direction::Read],
            "<&" | "<&-" => &[],
            ">&" | ">&-" => &[],
            "<>" => &[Direction::Read, Direction::Write],
            _ => &[Direction::Write],
        };
        let mut cursor = node.walk();
        let targets: Vec<_> = node.children_by_field_name("destination", &mut cursor).collect();
        for target in targets {
            let token = Token::of(target, source);
            let copies = token.known
                && (token.value == "-"
                    || token.value.trim_end_matches('-').bytes().all(|b| b.is_ascii_digit()));
            let directions = if matches!(operator, ">&" | "<&") && !copies {
                // `>& file` is a file.
                if operator == ">&" { &[Direction::Write][..] } else { &[Direction::Read][..] }
            } else {
                directions
            };
            if token.known && token.value.starts_with("/dev/tcp/") || token.value.starts_with("/dev/udp/") {
                self.doubt(Doubt::Construct);
            }
            if target.kind() != "process_substitution" && !is_stream(&token) {
                let word = if token.pattern { Word::Unknown } else { token.path(cwd) };
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
                    if !is_harmless(&name) || value.contains(['$', '`']) {
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
                Inner::Words(words) => self.simple(&words, "", &mut cwd.clone()),
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

fn part(words: &[Token], cwd: &Cwd) -> Part {
    let join = |words: &mut dyn Iterator<Item = &str>| words.collect::<Vec<_>>().join(" ");
    let text = join(&mut words.iter().map(|word| word.raw.as_str()));
    let plain = join(&mut words.iter().map(Token::said));
    let name = words.first().map_or("", |name| name.value.as_str());
    let program = base_name(name);
    let rest = &words[words.len().min(1)..];
    let based = join(&mut std::iter::once(program).chain(rest.iter().map(Token::said)));
    let mut forms = vec![text.clone(), plain, based];
    if program == "git" {
        let after = super::readonly::after_git_options(rest);
        forms.push(join(&mut std::iter::once("git").chain(after.iter().map(Token::said))));
    }
    forms.dedup();
    let (proof, operands) = match proof(words, cwd) {
        Some((proof, operands)) => (Some(proof), operands),
        None => (None, mentioned(rest, cwd)),
    };
    Part { plain: words.iter().all(|word| word.known), changes_shell: false, text, forms, operands, proof }
}

/// The words that may name files, of a command that nothing is known about.
fn mentioned(words: &[Token], cwd: &Cwd) -> Vec<Word> {
    words
        .iter()
        .filter_map(|word| {
            let value = match word.value.split_once('=') {
                Some((_, value)) => Token { value: value.to_owned(), ..word.clone() },
                None if word.value.starts_with('-') && !word.home => return None,
                None => word.clone(),
            };
            match value.path(cwd) {
                Word::Unknown => None,
                word => Some(word),
            }
        })
        .take(64)
        .collect()
}

/// Where the shell is after a `cd` that worked.
fn moved(program: &str, words: &[Token], cwd: &Cwd) -> Cwd {
    let mut arguments = words[1..].iter().filter(|word| !matches!(word.value.as_str(), "--" | "-P" | "-L"));
    match (program, arguments.next(), arguments.next()) {
        ("cd", None, _) => Cwd::At(Word::Home(".".into())),
        ("cd", Some(target), None) if !target.pattern && target.value != "-" => Cwd::At(target.path(cwd)),
        _ => Cwd::At(Word::Unknown),
    }
}

fn same(one: &Cwd, two: &Cwd) -> bool {
    let (Cwd::At(one), Cwd::At(two)) = (one, two);
    one == two
}

pub(super) fn base_name(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// What opens nothing, or nothing that anybody keeps.
fn is_stream(token: &Token) -> bool {
    let copies = token.known
        && !token.value.is_empty()
        && token.value.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit());
    copies
        || token.known && token.value == "-"
        || matches!(token.value.as_str(), "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr")
}

fn assignment(node: Node<'_>, source: &str) -> (String, String) {
    let name = node.child_by_field_name("name").map_or("", |name| text(name, source));
    let value = node.child_by_field_name("value").map_or("", |value| text(value, source));
    (name.to_owned(), value.to_owned())
}

/// Variables that change how a program speaks, and not what it runs.
fn is_harmless(name: &str) -> bool {
    name.starts_with("LC_")
        || matches!(
            name,
            "LANG"
                | "LANGUAGE"
                | "TZ"
                | "TERM"
                | "NO_COLOR"
                | "FORCE_COLOR"
                | "CLICOLOR"
                | "COLUMNS"
                | "LINES"
                | "CI"
                | "RUST_BACKTRACE"
                | "RUST_LOG"
                | "CARGO_TERM_COLOR"
                | "GIT_PAGER_IN_USE"
                | "PYTHONUNBUFFERED"
                | "DEBUG"
        )
}

/// A name that programs do not read: small letters, but those of proxies.
fn is_shell_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.ends_with("_proxy")
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// What the shell does itself and evaluates its words, or changes what later words mean.
fn evaluates(program: &str, words: &[Token]) -> bool {
    let has = |wanted: &[&str]| words[1..].iter().any(|word| wanted.contains(&word.value.as_str()));
    match program {
        "." | "source" | "alias" | "unalias" | "bind" | "caller" | "compgen" | "complete" | "compopt"
        | "declare" | "dirs" | "disown" | "enable" | "export" | "fc" | "getopts" | "hash" | "history"
        | "let" | "local" | "logout" | "mapfile" | "popd" | "pushd" | "read" | "readarray" | "readonly"
        | "set" | "shift" | "shopt" | "suspend" | "trap" | "typeset" | "ulimit" | "umask" | "unset" | "["
        | "[[" | "coproc" | "select" | "function" | "eval" | "exec" | "then" | "do" | "done" | "fi"
        | "esac" | "else" | "elif" | "in" | "{" | "}" => true,
        "printf" => words[1..].iter().any(|word| word.value.starts_with("-v") || !word.known),
        "git" => super::readonly::configures(&words[1..]),
        "test" => {
            has(&["-v", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-t"])
                || words[1..].iter().any(|word| !word.known || word.value.contains('['))
        }
        _ => false,
    }
}
