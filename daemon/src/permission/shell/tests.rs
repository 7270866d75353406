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

/// A path as the tests write it: `~` for the home, `?` for what is only known when it runs.
fn shown(word: &Word) -> String {
    match word {
        Word::Known(path) => path.display().to_string(),
        Word::Home(path) => format!("~/{}", path.display()),
        Word::Unknown => "?".to_owned(),
    }
}

#[test]
fn what_a_proven_command_reads_is_told() {
    for (line, files, among) in [
        ("cat a b", "a b", ""),
        // The kernel goes up from where a link leads.
        ("cat a/../b", "a/../b", ""),
        ("cd a && cat ../b", "a/../b", ""),
        ("cd a && cd .. && cat b", "b", ""),
        ("cd a/.. && cat b", "b", ""),
        // Each command of a pipe has a folder of its own.
        ("cd a | cat b", "b", ""),
        ("cd a && cat b 2>&1 | head c && cat d", "a/b a/c a/d", ""),
        ("git -C a/.. status", "a/..", ""),
        ("cat *", ".", ".:1"),
        ("cat src/*.rs ~/x/*/y", "src ~/x", "src:1 ~/x:2"),
        ("ls src/{a,b/c}.rs", "src", "src:2"),
        ("find src/* -name x", "src", "src:1"),
        // Of folders it compares the files.
        ("diff a b", "a b", "a:1 b:1"),
        ("echo ~/.ssh/*", "~/.ssh", ""),
        ("grep --reg=. ~/x", "~/x", ""),
        ("grep --regexp . ~/x", ". ~/x", ""),
        ("cd ~ && grep --recu x", "~/.", ""),
        ("cd ~ && grep -d recurse x", "~/. ~/x", ""),
        ("cd /etc && ls -I x", "/etc /etc/x", ""),
        ("rg --files ~/x", "~/x", ""),
        ("find . -newer ~/x", ". ~/x", ""),
    ] {
        let found = analyse(line);
        assert!(found.only_reads(), "{line}");
        let join = |words: Vec<String>| words.join(" ");
        assert_eq!(
            join(found.parts.iter().flat_map(|part| &part.operands).map(shown).collect()),
            files,
            "{line}"
        );
        let proofs = found.parts.iter().filter_map(|part| part.proof.as_ref());
        let names = proofs
            .flat_map(|proof| &proof.among)
            .map(|among| format!("{}:{}", shown(&among.folder), among.levels));
        assert_eq!(join(names.collect()), among, "{line}");
    }
}

#[test]
fn what_the_shell_opens_is_told() {
    for (line, files) in [
        ("echo x > 1", "1"),
        ("echo x > -", "-"),
        ("echo x 2> 1", "1"),
        ("echo x &> 1", "1"),
        ("echo x >& f", "f"),
        ("echo x >| f", "f"),
        ("cat < 1", "1"),
        ("echo x >&1 2>&-", ""),
        ("echo x 2>/dev/null", ""),
        ("echo x > {a,}", "?"),
        // A file is opened before the `cd` that it is for.
        ("cd a > b", "b"),
        ("cd a && echo x > b", "a/b"),
        ("cd a && echo x > b | cat > c", "a/b a/c"),
        ("{ cd a; } > b", "b"),
        ("cd a | echo x > b", "b"),
        ("! cd a && echo x > b", "?"),
        ("cd a && if true; then cd ..; fi && echo x > b", "?"),
        ("time cd a && echo x > b", "?"),
        ("cat <<E && cd a\nx\nE\necho x > b", "?"),
        ("echo x > a*", "?"),
    ] {
        let opened: Vec<_> = analyse(line).redirects.iter().map(|redirect| shown(&redirect.target)).collect();
        assert_eq!(opened.join(" "), files, "{line}");
    }
}

/// A rule may allow them; by themselves they are not taken to only read.
#[test]
fn what_git_runs_or_writes_beside_is_not_proven() {
    let rest = [
        "log --output=x",
        "log --outp x",
        "diff --ext-diff",
        "log -p --textconv",
        "cat-file --filters HEAD:a",
        "grep -Oless x",
        "grep -nf /etc/passwd",
        "grep --open-files-in-pager x",
        "blame --contents /etc/passwd a",
        "diff --no-index a b",
        "diff -O/etc/passwd",
        "log --show-signature",
        "log --format='%G?'",
        "for-each-ref --format='%(signature)'",
        "for-each-ref --format '%(signature:grade)'",
        "-p log",
        "--git-dir=x log",
        "stash list --output=x",
        "branch x",
        "tag -v x",
        "remote -v update",
        "diff {a,/etc/passwd}",
        "log --outpu[t]=x",
        "log -\\-output=x",
    ];
    for line in rest.map(|rest| format!("git {rest}")) {
        assert!(!analyse(&line).only_reads(), "{line}");
    }
}

#[test]
fn a_deny_rule_finds_its_command_behind_options_of_wrappers() {
    let deny = CommandPattern::parse("rm *").unwrap();
    for line in [
        "sudo -nu root rm d",
        "env -iS 'rm d'",
        "jobs -x rm d",
        "systemd-run --user rm d",
        "script -c 'rm d' x",
        "script -qc 'rm d' x",
        "time A=1 rm d",
        "time ! rm d",
        "setarch x86_64 rm d",
        "fakeroot rm d",
        "{rm,d}; rm d",
    ] {
        assert!(analyse(line).parts.iter().any(|part| deny.closes(part)), "{line}");
    }
    assert!(!analyse("command -v rm").parts.iter().any(|part| deny.closes(part)));
}
