//! `docs/cases.md` says which test shows what. It may not name one that is gone, nor a case miss whose number a test carries.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The names of all tests below `folder`, without what was built.
fn tests_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                tests_in(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.extend(tests_of(&std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The functions that stand below a test's attribute, other attributes and remarks in between.
fn tests_of(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in source.lines().map(str::trim) {
        let is_test = ["#[test]", "#[tokio::test"].iter().any(|attribute| line.starts_with(attribute));
        if is_test {
            marked = true;
        } else if marked && !line.starts_with("#[") && !line.starts_with("//") && !line.is_empty() {
            marked = false;
            let after = line.split_once("fn ").map_or("", |(_, rest)| rest);
            let name = after.split(['(', '<']).next().unwrap_or_default();
            names.extend((!name.is_empty()).then(|| name.to_owned()));
        }
    }
    names
}

/// Each case with the tests that its row names, in a table of three columns.
fn rows(page: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let [case, _, tests] = cells.as_slice() else { continue };
        let id = case.split_whitespace().next().unwrap_or_default();
        if id.ends_with(|last: char| last.is_ascii_digit()) {
            let names = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            assert!(rows.insert(id.to_owned(), names).is_none(), "{id} has two rows");
        }
    }
    rows
}

/// The number that a test's name begins with, as the page writes it: `se_01_…` is SE-01, `j12_…` is J12.
fn number(test: &str) -> Option<String> {
    let (first, rest) = test.split_once('_')?;
    if let "se" | "rp" | "pr" = first {
        return Some(format!("{}-{}", first.to_uppercase(), rest.split('_').next()?));
    }
    let (letter, digits) = first.split_at_checked(1)?;
    let is_one =
        "jpls".contains(letter) && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| first.to_uppercase())
}

#[test]
fn every_test_that_the_page_of_cases_names_is_there_and_every_numbered_one_has_a_row() {
    let mut tests = BTreeSet::new();
    tests_in(&root(), &mut tests);
    assert!(tests.len() > 500, "{} tests are not all", tests.len());
    let rows = rows(&std::fs::read_to_string(root().join("docs/cases.md")).unwrap());
    assert!(rows.len() > 60, "{} rows are not all", rows.len());
    let named: BTreeSet<&String> = rows.values().flatten().collect();
    let gone: Vec<_> = named.iter().filter(|name| !tests.contains(**name)).collect();
    assert!(gone.is_empty(), "docs/cases.md names tests that are not there: {gone:#?}");
    let without: Vec<_> =
        tests.iter().filter(|test| number(test).is_some_and(|case| !rows.contains_key(&case))).collect();
    assert!(
        without.is_empty(),
        "tests with the number of a case that docs/cases.md does not have: {without:#?}"
    );
}

#[test]
fn tests_rows_and_numbers_are_found() {
    let source = "#[test]\nfn one() {}\nfn helper() {}\n#[tokio::test(flavor = \"x\")]\n#[ignore]\nasync fn se_01_two() {}\n";
    assert_eq!(tests_of(source), ["one", "se_01_two"]);
    let page =
        "| id | does | shown by |\n|---|---|---|\n| SE-01 torn | mends | `one` `two` |\n| J8 | nothing | |\n";
    let rows = rows(page);
    assert_eq!(rows["SE-01"], ["one", "two"]);
    assert!(rows.contains_key("J8"), "{rows:?}");
    let numbers =
        ["se_01_two", "j12_x", "p4_x", "sh_01_x", "s3_x", "pm_20_x", "size_x", "pr_01_x"].map(number);
    let wanted = ["SE-01", "J12", "P4", "", "S3", "", "", "PR-01"];
    assert_eq!(numbers.map(Option::unwrap_or_default), wanted);
}
