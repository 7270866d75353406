//! The words of handles and of plan files: a few from what a person wrote, and a random noun that tells equal ones apart.
//! `api-paging-otter` is easier to say, type and remember than an id. Pure, the chance is handed in.

/// Longer names do not fit on a line beside anything else.
const MAX_NAME: usize = 40;
const MAX_WORDS: usize = 3;
/// A word longer than this is no word.
const MAX_WORD: usize = 16;
/// What a text is about is said early.
const MAX_TEXT: usize = 2_000;

/// Gives a noun. [`random_noun`], or a list in tests.
pub type Nouns<'a> = &'a mut dyn FnMut() -> &'static str;

/// One of [`NOUNS`].
#[must_use]
pub fn random_noun() -> &'static str {
    let chance = uuid::Uuid::new_v4().as_u128();
    // A version 4 UUID has 122 random bits; the fixed ones only shift the result, evenly for all practical purposes.
    let index = usize::try_from(chance % NOUNS.len() as u128).unwrap_or(0);
    NOUNS[index]
}

/// The part of a name that is made of a text's own words: lower-case ASCII, at most three, joined by hyphens. Absent
/// when the text has no such words.
#[must_use]
pub fn stem(text: &str) -> Option<String> {
    let longest_noun = NOUNS.iter().map(|noun| noun.len()).max().unwrap_or(0);
    let room = MAX_NAME - longest_noun - 1;
    let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(at, _)| at);
    let mut words: Vec<String> = Vec::new();
    let mut length = 0;
    for word in text[..end].split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '\u{2019}')) {
        let word = word.to_ascii_lowercase();
        if !is_meaningful(&word) || words.contains(&word) {
            continue;
        }
        let with_hyphen = word.len() + usize::from(!words.is_empty());
        if length + with_hyphen > room {
            break;
        }
        length += with_hyphen;
        words.push(word);
        if words.len() == MAX_WORDS {
            break;
        }
    }
    (!words.is_empty()).then(|| words.join("-"))
}

/// A session's handle, from its title or its folder's name.
#[must_use]
pub fn handle_from(text: &str, nouns: Nouns<'_>) -> String {
    format!("{}-{}", stem(text).as_deref().unwrap_or("session"), nouns())
}

/// A handle's words without its noun.
#[must_use]
pub fn stem_of_handle(handle: &str) -> Option<String> {
    let own = match handle.rsplit_once('-') {
        Some((own, noun)) if NOUNS.contains(&noun) => own,
        _ => handle,
    };
    stem(own)
}

fn is_meaningful(word: &str) -> bool {
    (2..=MAX_WORD).contains(&word.len())
        && word.bytes().all(|b| b.is_ascii_alphanumeric())
        && word.bytes().any(|b| b.is_ascii_alphabetic())
        && !STOP_WORDS.split_ascii_whitespace().any(|stop| stop == word)
}

/// Words that say nothing about what a text is about: grammar, politeness, and what one asks of every coding agent.
const STOP_WORDS: &str = "\
    able about add after all also an and any are as at be because been before but by can change code could \
    create did do does doing down each every file files find first fix for from get give go good had has \
    have hello help her here hey hi his how id if implement in into is it its just know let lets like look \
    make may me might more most must my need new no not now of ok on one only or other our out over plan \
    please project put really refactor run same see shall she should show so some such take than thank \
    thanks that the their them then there these they thing things this those to too try up update us use \
    using very want was we well were what when where which while who why will with without would write yes \
    yet you your";

/// Short, easy to spell, and nobody minds being called so.
pub const NOUNS: &[&str] = &[
    "acorn", "alder", "amber", "anchor", "apple", "apricot", "aspen", "aster", "badger", "bamboo", "banjo",
    "barley", "basil", "beacon", "beaver", "beech", "berry", "birch", "bison", "bluebell", "bobcat",
    "breeze", "bridge", "brook", "canary", "candle", "canoe", "canyon", "carrot", "castle", "cedar", "cello",
    "cherry", "chestnut", "clover", "cobalt", "comet", "copper", "coral", "cosmos", "cotton", "cougar",
    "cove", "crane", "cricket", "crocus", "crystal", "cypress", "daisy", "delta", "dolphin", "dove",
    "dragon", "dune", "eagle", "ember", "emerald", "falcon", "feather", "fennel", "fern", "ferry", "fiddle",
    "finch", "fjord", "flame", "flute", "forest", "fossil", "fox", "galaxy", "garden", "garnet", "gazelle",
    "gecko", "geyser", "ginger", "glacier", "granite", "grove", "gull", "harbor", "harp", "hazel", "heather",
    "heron", "hickory", "holly", "honey", "hopper", "ibis", "indigo", "iris", "island", "ivy", "jade",
    "jasmine", "jasper", "juniper", "kayak", "kestrel", "kettle", "kite", "kiwi", "koala", "lagoon",
    "lantern", "lark", "laurel", "lemon", "lemur", "lilac", "lily", "linden", "llama", "lotus", "lynx",
    "magnolia", "mango", "maple", "marble", "marmot", "meadow", "melon", "meteor", "mint", "moose", "moss",
    "nebula", "nectar", "nutmeg", "oak", "oasis", "ocean", "olive", "onyx", "opal", "orchid", "osprey",
    "otter", "owl", "panda", "papaya", "parrot", "peach", "pearl", "pebble", "pelican", "penguin", "pepper",
    "petal", "piano", "pine", "planet", "plum", "pond", "poplar", "poppy", "prairie", "puffin", "quail",
    "quartz", "quill", "rabbit", "raven", "reef", "ridge", "river", "robin", "rocket", "saffron", "sage",
    "salmon", "sapphire", "seal", "sequoia", "sparrow", "spruce", "squirrel", "starling", "stone", "stork",
    "summit", "sunrise", "swan", "tiger", "topaz", "toucan", "tulip", "turtle", "valley", "velvet", "violet",
    "walnut", "walrus", "willow", "wombat", "zebra",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stems_are_the_first_words_that_say_something() {
        let cases = [
            ("Add pagination to the REST API", Some("pagination-rest-api")),
            ("please fix the login bug, the login page crashes", Some("login-bug-page")),
            ("src/lib.rs: don't panic", Some("src-lib-rs")),
            ("Upgrade HTTP/2 in 2026", Some("upgrade-http")),
            ("what is it?", None),
            ("", None),
            ("добавь тесты", None),
            ("Ünïcode naïve tests", Some("tests")),
            ("it's Bob's parser", Some("parser")),
            ("../../etc/passwd\0\n; rm -rf /", Some("etc-passwd-rm")),
            ("internationalization localization authentication", Some("localization-authentication")),
            ("authentication authorization accounts", Some("authentication-authorization")),
        ];
        for (text, expected) in cases {
            assert_eq!(stem(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn names_are_plain_and_short_whatever_the_text() {
        let hostile =
            ["x".repeat(100_000), "a-b ".repeat(10_000), "\u{202e}evil\u{0}/..".into(), "ab cd ef".into()];
        for text in &hostile {
            let name = handle_from(text, &mut || "chestnut");
            assert!(name.len() <= MAX_NAME, "{name}");
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
        }
        assert_eq!(handle_from("???", &mut || "otter"), "session-otter");
        assert_eq!(handle_from("my-web_app", &mut || "otter"), "web-app-otter");
    }

    #[test]
    fn the_noun_of_a_handle_is_not_one_of_its_words() {
        assert_eq!(stem_of_handle("api-paging-otter").as_deref(), Some("api-paging"));
        assert_eq!(stem_of_handle("api-paging").as_deref(), Some("api-paging"));
        assert_eq!(stem_of_handle("otter").as_deref(), Some("otter"));
    }

    #[test]
    fn lists_are_sorted_and_without_doubles() {
        assert!(NOUNS.is_sorted_by(|a, b| a < b));
        assert!(STOP_WORDS.split_ascii_whitespace().is_sorted_by(|a, b| a < b));
        assert!(NOUNS.iter().all(|noun| noun.bytes().all(|b| b.is_ascii_lowercase())));
        assert!(NOUNS.contains(&random_noun()));
    }
}
