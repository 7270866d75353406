//! What holds for every command line.

use proptest::prelude::*;

use super::*;

/// Pieces that make lines which a shell would take.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "ls",
            "rm",
            "echo",
            "cat",
            "git",
            "cd",
            "x",
            "-rf",
            "~",
            "*",
            "a=b",
            "FOO=1",
            "$x",
            "${x}",
            "${x:-y}",
            "${x@P}",
            "$(",
            ")",
            "`",
            "(",
            "{",
            "}",
            ";",
            "&",
            "&&",
            "||",
            "|",
            "|&",
            "\n",
            ">",
            ">>",
            "<",
            "<<EOF",
            "<<<",
            "2>&1",
            "&>",
            ">&",
            "<(",
            ">(",
            "EOF",
            "if",
            "then",
            "fi",
            "for",
            "in",
            "do",
            "done",
            "while",
            "case",
            "esac",
            ";;",
            "[",
            "]",
            "[[",
            "]]",
            "((",
            "))",
            "$((",
            "'",
            "\"",
            "\\",
            "$'",
            "#",
            "!",
            "time",
            "function",
            "f()",
            "{1..3}",
            "{a,b}",
            "%",
            "é",
            "\u{10b979}",
            "\u{a0}",
            "\t",
            "/dev/tcp/h/1",
            "=",
            "..",
        ])
        .prop_map(str::to_owned),
        "[a-z]{1,4}",
        ".{0,6}",
    ]
}

fn line() -> impl Strategy<Value = String> {
    (prop::collection::vec((piece(), any::<bool>()), 0..24)).prop_map(|pieces| {
        pieces.into_iter().map(|(piece, blank)| if blank { format!("{piece} ") } else { piece }).collect()
    })
}

/// Commands that a shell takes, one after the other.
fn tame() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "ls",
        "rm",
        "echo",
        "cat",
        "git",
        "x",
        "status",
        "-rf",
        "'a b'",
        "\"$x\"",
        "$(rm y)",
        "> f",
        "2>/dev/null",
        "< g",
        "*.c",
        "A=1",
        "timeout",
        "5",
        "bash",
        "-c",
        "'rm z'",
        "-o",
    ]);
    let command = prop::collection::vec(word, 1..5).prop_map(|words| format!("x {}", words.join(" ")));
    let other = prop::sample::select(vec![
        "ls",
        "rm d",
        "echo a",
        "cat b",
        "git status",
        "(rm d)",
        "{ ls; rm d; }",
        "if ls; then rm d; fi",
    ]);
    let simple = prop_oneof![command, other.prop_map(str::to_owned)];
    prop::collection::vec(simple, 1..4).prop_map(|commands| commands.join(" && "))
}

/// Whether these rules would let every part run.
fn allowed(line: &Line, rules: &[CommandPattern]) -> bool {
    line.doubt.is_none()
        && !line.parts.is_empty()
        && !line.opens_unknown()
        && line.parts.iter().all(|part| rules.iter().any(|rule| rule.allows(part)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_taken_apart(text in prop_oneof![line(), ".{0,200}", "\\PC{0,60}"]) {
        let found = analyse(&text);
        for part in &found.parts {
            prop_assert!(!part.forms.is_empty());
        }
        if found.only_reads() {
            prop_assert!(found.doubt.is_none() && !found.parts.is_empty());
        }
    }

    /// Whatever is added to a line, it is not allowed by what did not allow the line, and what a deny rule has found it
    /// still finds.
    #[test]
    fn adding_a_command_never_opens(
        text in tame(),
        added in prop_oneof![line(), tame()],
        joint in prop::sample::select(vec![" && ", " || ", "; ", " | ", "\n", " & "]),
    ) {
        let rules: Vec<_> =
            ["ls *", "echo *", "cat *", "git *", "x"].iter().map(|spec| CommandPattern::parse(spec).unwrap()).collect();
        let deny = CommandPattern::parse("rm *").unwrap();
        let (before, after) = (analyse(&text), analyse(&format!("{text}{joint}{added}")));
        if !allowed(&before, &rules) {
            prop_assert!(!allowed(&after, &rules), "{:?}", after);
        }
        if before.parts.iter().any(|part| deny.closes(part)) {
            prop_assert!(after.parts.iter().any(|part| deny.closes(part)), "{:?}", after);
        }
        if !before.only_reads() {
            prop_assert!(!after.only_reads(), "{:?}", after);
        }
    }

    /// A rule made of a part allows exactly that part.
    #[test]
    fn an_exact_rule_allows_its_own_part(text in line(), other in line()) {
        let (one, two) = (analyse(&text), analyse(&other));
        for part in one.parts.iter().filter(|part| !part.text.trim().is_empty() && part.text == part.text.trim()) {
            let rule = CommandPattern::parse(&escape(&part.text)).unwrap();
            prop_assert!(rule.allows(part));
            for other in &two.parts {
                prop_assert_eq!(rule.allows(other), other.text == part.text);
            }
        }
    }
}

#[test]
fn a_line_that_nobody_reads_is_not_looked_through() {
    assert_eq!(analyse(&"ls;".repeat(4_000)).doubt, Some(Doubt::TooLong));
    assert_eq!(analyse(&"(".repeat(5_000)).doubt, Some(Doubt::Unparseable));
    let deep = format!("{}ls{}", "(".repeat(200), ")".repeat(200));
    assert!(analyse(&deep).doubt.is_some());
}

const SHAPES: &str = include_str!("corpus/shapes.txt");
const CLOSED: &str = include_str!("corpus/closed.txt");
const OPEN: &str = include_str!("corpus/open.txt");

fn lines(page: &'static str) -> Vec<String> {
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with("# "));
    lines.map(|line| line.replace("\\n", "\n").replace("\\t", "\t")).collect()
}

fn patterns(specs: &[&str]) -> Vec<CommandPattern> {
    specs.iter().map(|spec| CommandPattern::parse(spec).unwrap()).collect()
}

#[test]
fn no_line_of_the_corpus_is_allowed_or_proven() {
    let rules = patterns(&["git *", "echo *", "cat *", "ls *", "cargo *", "true"]);
    let mut all = lines(CLOSED);
    for shape in lines(SHAPES) {
        let shape = shape.strip_prefix("+ ").or(shape.strip_prefix("- ")).unwrap_or(&shape);
        all.extend(["rm d", "./mark", "touch f"].map(|command| shape.replace('@', command)));
    }
    assert!(all.len() >= 300, "{}", all.len());
    let open: Vec<_> = all
        .iter()
        .filter(|line| {
            let found = analyse(line);
            allowed(&found, &rules) || found.only_reads()
        })
        .collect();
    assert!(open.is_empty(), "{} lines: {open:#?}", open.len());
}

#[test]
fn a_deny_rule_finds_its_command_in_every_shape() {
    let deny = CommandPattern::parse("rm *").unwrap();
    let missed: Vec<_> = lines(SHAPES)
        .iter()
        .map(|shape| shape[2..].replace('@', "rm d"))
        .filter(|line| !analyse(line).parts.iter().any(|part| deny.closes(part)))
        .collect();
    // A text in a variable, or in the output of another command, is run by what evaluates it; that line asks, or is refused
    // where nobody is asked.
    let evaluated = [
        "x='rm d'; eval",
        "x='rm d'; $x",
        "git -c alias",
        "git -c core.pager",
        "source <(",
        ". <(",
        "rsh host",
        "x='a[$(rm",
        "git status && $CMD",
    ];
    let unexpected: Vec<_> =
        missed.iter().filter(|line| !evaluated.iter().any(|known| line.starts_with(known))).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

#[test]
fn everyday_lines_are_allowed_or_proven() {
    let rules = patterns(&[
        "cargo *",
        "git *",
        "npm test",
        "npm run *",
        "make *",
        "pytest *",
        "go test *",
        "mkdir *",
        "touch *",
        "jq *",
        "sed -n *",
        "rustfmt *",
        "node --version",
    ]);
    let all = lines(OPEN);
    assert!(all.len() >= 150, "{}", all.len());
    let blocked: Vec<_> = all
        .iter()
        .filter(|line| {
            let found = analyse(line);
            let each = |part: &Part| part.proof.is_some() || rules.iter().any(|rule| rule.allows(part));
            found.doubt.is_some() || found.opens_unknown() || !found.parts.iter().all(each)
        })
        .collect();
    assert!(blocked.is_empty(), "{} lines: {blocked:#?}", blocked.len());
}
