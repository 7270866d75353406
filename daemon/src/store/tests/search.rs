use proptest::prelude::*;

use super::*;
use SearchRole::{Assistant, Title, User};

#[tokio::test]
async fn every_word_has_to_stand_there_and_longer_words_count() {
    let bench = Bench::new().await;
    bench
        .says(
            &row("/a"),
            &[
                (User, "Add pagination to the REST API"),
                (Assistant, "Done: cursor-based Páging of snake_case_names"),
            ],
        )
        .await;
    assert_eq!(bench.find("pagination"), ["Add [pagination] to the REST API"]);
    assert_eq!(bench.find("API pagin"), ["Add [pagination] to the REST [API]"]);
    assert_eq!(bench.find("PAGING"), ["Done: cursor-based [Páging] of snake_case_names"]);
    assert_eq!(bench.find("snake_case"), ["Done: cursor-based Páging of [snake_case]_names"]);
    assert_eq!(bench.find("cursor-based"), ["Done: [cursor-based] Páging of snake_case_names"]);
    for none in ["pagination cursor", "based-cursor", "agination", "missing"] {
        assert_eq!(bench.find(none), Vec::<String>::new(), "{none}");
    }
}

#[tokio::test]
async fn the_newest_comes_first_and_no_session_hides_the_others() {
    let bench = Bench::new().await;
    let (many, one) = (row("/a"), row("/b"));
    bench.says(&one, &[(User, "word zero")]).await;
    bench
        .says(&many, &[(User, "no"), (User, "word 2"), (User, "word 3"), (User, "word 4"), (User, "word 5")])
        .await;
    assert_eq!(bench.find("word"), ["[word] 5", "[word] 4", "[word] 3", "[word] zero"]);
    let search = |cwd: Option<&str>, session, limit| {
        bench.search(&Query::new("word", cwd.map(str::to_owned), session, limit).unwrap())
    };
    assert_eq!(search(None, None, 2), ["[word] 5", "[word] 4"]);
    assert_eq!(search(Some("/b"), None, 9), ["[word] zero"]);
    assert_eq!(search(None, Some(many.session_id), 9).len(), 4, "all of the one that is named");
    let found = bench.store.search(&Query::new("zero", None, None, 1).unwrap()).unwrap();
    assert_eq!((found[0].seq, found[0].at, found[0].role), (Seq(1), at(1), User));
    assert_eq!(found[0].row, one);
}

#[tokio::test]
async fn only_the_present_title_is_found() {
    let bench = Bench::new().await;
    let session = row("/a");
    bench.says(&session, &[(Title, "Old name"), (User, "name it"), (Title, "New name")]).await;
    assert_eq!(bench.find("old"), Vec::<String>::new());
    assert_eq!(bench.find("name"), ["New [name]", "[name] it"]);
}

#[tokio::test]
async fn texts_are_kept_up_to_a_limit_and_shown_as_they_were() {
    let bench = Bench::new().await;
    let long = format!("first {} last", "x ".repeat(MAX_TEXT));
    let odd = "\u{1b}[31mred\u{1b}[0m \u{2}begin\u{3} nul\0here";
    bench.says(&row("/a"), &[(User, &long), (User, odd), (User, "…!")]).await;
    assert_eq!(bench.find("last"), Vec::<String>::new());
    assert!(bench.find("first")[0].starts_with("[first] x x"));
    // Nothing that a text holds is taken for a mark of a match.
    assert_eq!(bench.find("begin"), ["\u{1b}[31mred\u{1b}[0m  [begin]  nul here"]);
    assert_eq!(Text::new(Seq(1), at(0), User, &"é".repeat(MAX_TEXT)).unwrap().text.len(), MAX_TEXT);
}

#[tokio::test]
async fn a_hostile_query_is_no_syntax() {
    let bench = Bench::new().await;
    bench.says(&row("/a"), &[(User, "quiet words AND nothing else, text: here")]).await;
    for text in [
        "\"",
        "a\"",
        "\"a",
        "\"\"\"",
        "'",
        "a' OR '1'='1",
        "a; DROP TABLE sessions",
        "*",
        "a*",
        "*a",
        "^a",
        "a^",
        "text:a",
        "-text:a",
        "{text}: a",
        "{text rowid}:a",
        "(",
        ")",
        "(a",
        "a)",
        "a AND",
        "AND",
        "OR OR",
        "NOT a",
        "NEAR",
        "NEAR(a b, 1)",
        "NEAR(",
        "a + b",
        "+",
        "a -- b",
        "/* a",
        "\\",
        "a\\\"",
        "%",
        "_",
        "a\0b",
        "\0",
        "\u{2}a\u{3}",
        "\u{feff}",
        "a\u{0301}",
        "🦦",
        "漢字",
        "\u{202e}a",
        "words:",
        "a.b.c",
        "-a",
        "--a",
        "rank",
        "rowid",
        "words MATCH 'a'",
        "\u{10ffff}a",
        "ﬁ",
    ] {
        if let Ok(query) = Query::new(text, None, None, 5) {
            let _ = bench.search(&query);
        }
    }
    assert_eq!(bench.find("\"AND\" text:").len(), 1);
    assert_eq!(bench.find("words NEAR").len(), 0, "NEAR is a word like any other");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn no_query_at_all_is_an_error_of_the_index(queries in prop::collection::vec(".{0,40}|[\"'*^:(){}+\\-a ]{0,12}", 60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bench = Bench::new().await;
            bench.says(&row("/a"), &[(User, "a b c")]).await;
            for text in queries {
                if let Ok(query) = Query::new(&text, None, None, 5) {
                    let _ = bench.search(&query);
                }
            }
        });
    }
}
