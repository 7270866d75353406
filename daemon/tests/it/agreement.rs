//! Lines and words made at random, as the gate reads them and as bash does. A plain run takes a few hundred, the same ones
//! each time; `AGENTD_AGREEMENT=20000` takes as many, and `AGENTD_AGREEMENT_SEED=7` others.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use agentd::permission::shell::{CommandPattern, Direction, Line, Word, analyse};

use super::shapes::confined;

/// What makes a second command of the rest of a line, or looks so.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "echo ", "cat ", "ls ", "true", "touch mark", "touch mark", "$(touch mark)", "`touch mark`", "$(", "`", "\\`", ")", "(", "{ ",
    "; }", ";", "&", "&&", "||", "|", "|&", "\n", "\n", "'", "\"", "'", "\"", "\\", "\\\n", "$", "${x", "${x:-", "${x:+", "${x}",
    "$x", "}", "#", " #", "<<EOF", "<<'EOF'", "<<-EOF", "\nEOF\n", "EOF", "<<<", "<(", "2>&1", ">&2", ">/dev/null ", "case x in ",
    ",", " x) ", ";;", " esac", "if ", "then ", "fi", "for x in ", "do ", "done", "while ", "[", "]", "{a,", "..", "*", "!", "=",
    "a=", "A=1 ", "x=", "+", "@", "~", "time ", "\t", "  ", "a", "-n", "$'", "$\"", "((", "))", "$((", "[[ ", "]]", "\\\\", "\\\"",
    "\\'", "\\$", "%", "é", "printf ", "x=1 ", "LANG=C ", " ", " ", " ", "../outside/", "/k", "cd ", "cd ..", "~/", "{", ",..}", "> ",
    "< ", ">", "<", "1", "&>", ">|", "<>", "{x}>", "^", "?", "\r", "\u{a0}", "\u{2028}", "\x0b", "\x0c", "-", "_", ":", "coproc ",
    "function ", "f() ", "select ", "in ", "elif ", "else ", "until ", "exec ", "command ", "trap ", "alias ", "!!", "!$", "|&",
    ";&", ";;&", "%1", "!(a)", "@(a|b)", "?(a)", "<<\\EOF", "<<\"EOF\"", "<<E'O'F", "EOF ", "\tEOF", "<<a <<b", "$[", "$_", "$-",
    "head ", "tail ", "grep -r . ", "find ", "-exec touch mark ;", "sort -o ", "wc ", "diff ", "b/", "b/../", "/../", ".", "stat ",
];

/// Lines that are allowed as they are, to be changed a little.
#[rustfmt::skip]
const BASES: &[&str] = &[
    "ls -la | head", "cat a 2>/dev/null || true", "echo 'a; b' \"c $x\"", "cat <<EOF\nplain text\nEOF\n", "cat <<'EOF'\n$(not run)\nEOF\n",
    "cd b && cat c | head -5", "for f in a b; do echo done; done", "if grep -q x a; then echo yes; else pwd; fi", "(cd b; ls)",
    "{ ls; pwd; }", "ls # what is here\npwd", "LC_ALL=C sort a > out", "find . -name '*.rs' | sort | uniq", "echo \"a\\\"b\" `true`",
    "grep -rn 'fn' --include='*.rs' b", "cat a b/* {a,b/c} ~/x*", "! ls a", "while ls a; do echo x; done", "echo $(ls a) \"$(pwd)\"",
    "cat <<A <<B\na\nA\nb\nB\necho x", "cat <<-X | tail\n\ta\n\tX\n", "case x in a) ls;; *) pwd;; esac", "x=1; echo $x ${x:-y}", "cat <<<x",
    "printf '%s\\n' a 'b'\\''c'", "cat < a > out 2>&1", "echo a\\ b \\# c", "time ls", "ls &\necho x", "echo a >> out; diff a b/c",
];

/// What a word may be made of.
#[rustfmt::skip]
const LETTERS: &[&str] = &[
    "a", "b", "/", "..", ".", "'", "\"", "'", "\"", "\\", "\\\\", "\\\n", "$", "$'", "$\"", "\\\"", "\\'", "\\$", "\\`", "`", "#",
    "!", "=", "+", "@", "%", "é", "-", "~", "~/", "^", ":", ",", "{", "}", "]", "\\ ", "\\t", "1", "_", "\\&", "$$", "$1",
];

/// Chance that a seed repeats (SplitMix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn some(&mut self, of: &[&str], most: usize) -> String {
        (0..1 + self.below(most)).map(|_| self.one(of)).collect()
    }

    /// A line that is allowed, with a few characters taken out or put in.
    fn changed(&mut self) -> String {
        let mut line: Vec<char> = self.one(BASES).chars().collect();
        for _ in 0..1 + self.below(4) {
            let at = self.below(line.len() + 1);
            let end = if self.below(3) == 0 { (at + 1 + self.below(3)).min(line.len()) } else { at };
            let piece = if end > at { String::new() } else { self.some(PIECES, 2) };
            line.splice(at..end, piece.chars());
        }
        line.into_iter().collect()
    }

    fn line(&mut self) -> String {
        match self.below(4) {
            0 => format!("echo {}\ntouch mark", self.some(PIECES, 10)),
            1 => format!("{}\ntouch mark", self.changed()),
            2 => self.some(PIECES, 10),
            _ => self.changed(),
        }
    }
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(otherwise)
}

/// So many different texts that pass, and the seed they come from.
fn texts(make: fn(&mut Dice) -> String, passes: impl Fn(&str) -> bool) -> (u64, Vec<String>) {
    let seed = setting("AGENTD_AGREEMENT_SEED", 1);
    let wanted = usize::try_from(setting("AGENTD_AGREEMENT", 300)).unwrap();
    let mut dice = Dice(seed);
    let mut found = BTreeSet::new();
    while found.len() < wanted {
        let text = make(&mut dice);
        if passes(&text) {
            found.insert(text);
        }
    }
    (seed, found.into_iter().collect())
}

/// Runs a script for each text, which it finds in `$1`, in a folder of its own, `place/work`; what it prints is in
/// `place/said`. Some files lie there, and others, that hold `SECRET`, in the home and in another folder beside. `look` gets
/// each place afterwards. False: there is no bubblewrap here.
fn each(script: &str, texts: &[String], mut look: impl FnMut(&str, &Path)) -> bool {
    for some in texts.chunks(100) {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (number, text) in some.iter().enumerate() {
            let place = root.join(number.to_string());
            for folder in ["work/b", "home", "outside"] {
                std::fs::create_dir_all(place.join(folder)).unwrap();
            }
            for (file, holds) in [
                ("work/a", "x\n"),
                ("work/b/c", "x\n"),
                ("home/key", "SECRET\n"),
                ("outside/key", "SECRET\n"),
                ("text", text),
            ] {
                std::fs::write(place.join(file), holds).unwrap();
            }
        }
        let all = format!(
            "ulimit -f 2000; touch there; for n in $(seq 0 {}); do (cd $n/work; IFS= read -r -d '' t <../text; set -- \"$t\"; \
             export HOME=${{PWD%/work}}/home; {script} >../said 2>&1 </dev/null); done",
            some.len() - 1
        );
        confined(root, &all);
        if !root.join("there").exists() {
            return false;
        }
        for (number, text) in some.iter().enumerate() {
            look(text, &root.join(number.to_string()));
        }
    }
    true
}

fn is_allowed(line: &Line) -> bool {
    let rules = ["echo *", "cat *", "ls *", "true *"].map(|rule| CommandPattern::parse(rule).unwrap());
    line.doubt.is_none()
        && !line.parts.is_empty()
        && !line.opens_unknown()
        && line.parts.iter().all(|part| part.proof.is_some() || rules.iter().any(|rule| rule.allows(part)))
}

/// Whether a place is told to lie outside of the folder where the line starts.
fn leads_out(word: &Word) -> bool {
    let Word::Known(path) = word else { return true };
    path.components().any(|component| !matches!(component, Component::CurDir | Component::Normal(_)))
}

/// All files in a folder, by their names from there.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&below)).unwrap() {
            let entry = entry.unwrap();
            let name = below.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(name);
            } else {
                found.insert(name);
            }
        }
    }
    found
}

#[test]
fn a_line_that_is_allowed_does_what_was_told_of_it() {
    let (seed, lines) = texts(Dice::line, |text| is_allowed(&analyse(text)));
    let (mut wrote, mut read, mut ran) = (Vec::new(), Vec::new(), 0);
    let there = each("timeout 1 /bin/bash --noprofile --norc -c \"$1\"", &lines, |text, place| {
        let line = analyse(text);
        let said = std::fs::read(place.join("said")).expect("each line is run");
        ran += usize::from(!String::from_utf8_lossy(&said).contains("syntax error"));
        let opened =
            |direction| line.redirects.iter().filter(move |redirect| redirect.direction == direction);
        let told: BTreeSet<_> = ["a", "b/c"]
            .map(PathBuf::from)
            .into_iter()
            .chain(opened(Direction::Write).filter_map(|redirect| match &redirect.target {
                // No link lies there.
                Word::Known(path) => Some(path.components().fold(PathBuf::new(), |mut path, component| {
                    if component != Component::ParentDir || !path.pop() {
                        path.push(component);
                    }
                    path
                })),
                _ => None,
            }))
            .collect();
        if !files(&place.join("work")).is_subset(&told) || place.join("mark").exists() {
            wrote.push(text.to_owned());
        }
        let reads = line.parts.iter().flat_map(|part| &part.operands);
        let outside = reads.chain(opened(Direction::Read).map(|redirect| &redirect.target)).any(leads_out);
        if line.only_reads() && !outside && String::from_utf8_lossy(&said).contains("SECRET") {
            read.push(text.to_owned());
        }
    });
    if !there {
        return eprintln!("!! skipped: bubblewrap is missing or may not make namespaces here");
    }
    assert!(wrote.is_empty(), "AGENTD_AGREEMENT_SEED={seed}: bash writes more than was told: {wrote:#?}");
    assert!(read.is_empty(), "AGENTD_AGREEMENT_SEED={seed}: bash reads more than was told: {read:#?}");
    assert!(ran * 2 > lines.len(), "only {ran} of {} mean anything to bash", lines.len());
}

#[test]
fn a_word_that_is_known_says_the_same_to_bash() {
    let value = |text: &str| {
        let line = analyse(&format!("cat -- {text}"));
        let [part] = line.parts.as_slice() else { return None };
        let [Word::Known(_)] = part.operands.as_slice() else { return None };
        // Braces and stars become names when they run; what is escaped at the end would swallow the script's next word.
        let whole = line.only_reads() && line.redirects.is_empty() && !text.contains(['{', '*', '\n', '\'']);
        let said = part.forms.get(1).unwrap_or(&part.forms[0]).strip_prefix("cat -- ")?.to_owned();
        (whole && !text.ends_with('\\')).then_some(said)
    };
    let (seed, words) = texts(|dice| dice.some(LETTERS, 7), |text| value(text).is_some());
    let mut differ = Vec::new();
    let there = each("timeout 1 /bin/bash --noprofile --norc -c \"printf %s, $1\"", &words, |text, place| {
        let (value, said) = (value(text).unwrap(), std::fs::read(place.join("said")).unwrap());
        if format!("{value},").as_bytes() != said {
            differ.push((text.to_owned(), value, String::from_utf8_lossy(&said).into_owned()));
        }
    });
    if !there {
        return eprintln!("!! skipped: bubblewrap is missing or may not make namespaces here");
    }
    assert!(
        differ.is_empty(),
        "AGENTD_AGREEMENT_SEED={seed}: word, as read here, as bash says it: {differ:#?}"
    );
}
