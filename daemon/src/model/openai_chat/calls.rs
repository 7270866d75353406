//! Puts the pieces of tool calls together. Servers differ in what they send with each piece: an index or none, an id
//! once, always or never, a name that is empty at first or repeated in every piece.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
pub(super) struct Piece<'a> {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default, borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    function: Option<PieceOfFunction<'a>>,
}

#[derive(Default, Deserialize)]
struct PieceOfFunction<'a> {
    #[serde(default, borrow)]
    name: Option<Cow<'a, str>>,
    /// A string by the book; some servers send the object itself.
    #[serde(default, borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Default)]
pub(super) struct Partial {
    index: Option<u64>,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

#[derive(Default)]
pub(super) struct Calls(Vec<Partial>);

impl Calls {
    pub(super) fn add(&mut self, pieces: Vec<Piece<'_>>) {
        let alone = pieces.len() == 1;
        for piece in pieces {
            let id = piece.id.unwrap_or_default();
            let function = piece.function.unwrap_or_default();
            let name = function.name.unwrap_or_default();
            let arguments = function.arguments.map(text_of).unwrap_or_default();
            let at = self.place(piece.index, &id, &name, &arguments, alone);
            let call = match at {
                Some(at) => &mut self.0[at],
                None => {
                    self.0.push(Partial { index: piece.index, ..Partial::default() });
                    let last = self.0.len() - 1;
                    &mut self.0[last]
                }
            };
            if call.id.is_empty() {
                call.id = id.into_owned();
            }
            if name.starts_with(call.name.as_str()) {
                // The first name, the same once more, or the name so far.
                call.name = name.into_owned();
            } else if call.arguments.is_empty() && call.name != name {
                call.name.push_str(&name);
            }
            call.arguments.push_str(&arguments);
        }
    }

    /// Which call a piece belongs to; none: it begins one.
    fn place(&self, index: Option<u64>, id: &str, name: &str, arguments: &str, alone: bool) -> Option<usize> {
        if let Some(index) = index {
            // Some servers give every call of a message index 0; another id tells them apart.
            return self.0.iter().rposition(|call| {
                call.index == Some(index) && (id.is_empty() || call.id.is_empty() || call.id == id)
            });
        }
        if !id.is_empty() {
            let known = self.0.iter().rposition(|call| call.id == id);
            // A late id belongs to the call that still lacks one.
            return known.or_else(|| self.0.iter().rposition(|call| call.id.is_empty() && alone));
        }
        let last = self.0.len().checked_sub(1)?;
        let begins = !name.is_empty() && !arguments.is_empty() && is_whole(&self.0[last].arguments);
        if begins || (!alone && !name.is_empty()) { None } else { Some(last) }
    }

    pub(super) fn into_parts(self) -> Vec<Partial> {
        self.0
    }
}

fn text_of(raw: &RawValue) -> Cow<'_, str> {
    match raw.get().as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw.get()).map_or(Cow::Borrowed(""), Cow::Owned),
        Some(b'n') => Cow::Borrowed(""),
        _ => Cow::Borrowed(raw.get()),
    }
}

fn is_whole(arguments: &str) -> bool {
    serde_json::from_str::<&RawValue>(arguments).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each text is the `tool_calls` of one delta.
    fn put_together(deltas: &[&str]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for delta in deltas {
            calls.add(serde_json::from_str(delta).unwrap());
        }
        calls.into_parts().into_iter().map(|call| (call.id, call.name, call.arguments)).collect()
    }

    fn call(id: &str, name: &str, arguments: &str) -> (String, String, String) {
        (id.into(), name.into(), arguments.into())
    }

    #[test]
    fn id_once_then_index_only() {
        let got = put_together(&[
            r#"[{"index":0,"id":"a","type":"function","function":{"name":"read_file","arguments":""}}]"#,
            r#"[{"index":1,"id":"b","function":{"name":"list_files","arguments":"{"}}]"#,
            r#"[{"index":0,"function":{"arguments":"{\"file_path\":"}}]"#,
            r#"[{"index":1,"function":{"arguments":"}"}},{"index":0,"function":{"arguments":"\"x\"}"}}]"#,
        ]);
        assert_eq!(got, [call("a", "read_file", r#"{"file_path":"x"}"#), call("b", "list_files", "{}")]);
    }

    #[test]
    fn no_index_but_ids() {
        let got = put_together(&[
            r#"[{"id":"a","function":{"name":"read_file","arguments":"{\"a\":"}}]"#,
            r#"[{"id":"b","function":{"name":"read_file","arguments":"{\"b\":"}}]"#,
            r#"[{"id":"b","function":{"arguments":"2}"}}]"#,
            r#"[{"id":"a","function":{"arguments":"1}"}}]"#,
        ]);
        assert_eq!(got, [call("a", "read_file", r#"{"a":1}"#), call("b", "read_file", r#"{"b":2}"#)]);
    }

    #[test]
    fn no_index_and_id_in_the_first_piece_only() {
        let got = put_together(&[
            r#"[{"id":"a","function":{"name":"one","arguments":""}}]"#,
            r#"[{"function":{"arguments":"{\"a\""}}]"#,
            r#"[{"function":{"arguments":":1}"}}]"#,
            r#"[{"id":"b","function":{"name":"two","arguments":""}}]"#,
            r#"[{"function":{"arguments":"{}"}}]"#,
        ]);
        assert_eq!(got, [call("a", "one", r#"{"a":1}"#), call("b", "two", "{}")]);
    }

    #[test]
    fn neither_index_nor_id() {
        let got = put_together(&[
            r#"[{"function":{"name":"one","arguments":"{\"a\":1}"}}]"#,
            r#"[{"function":{"name":"two","arguments":"{}"}}]"#,
        ]);
        assert_eq!(got, [call("", "one", r#"{"a":1}"#), call("", "two", "{}")]);
        let got = put_together(&[
            r#"[{"function":{"name":"one","arguments":"{}"}},{"function":{"name":"two","arguments":{"b":2}}}]"#,
        ]);
        assert_eq!(got, [call("", "one", "{}"), call("", "two", r#"{"b":2}"#)]);
    }

    #[test]
    fn one_index_for_several_calls() {
        let got = put_together(&[
            r#"[{"index":0,"id":"a","function":{"name":"one","arguments":"{}"}}]"#,
            r#"[{"index":0,"id":"b","function":{"name":"two","arguments":"{}"}}]"#,
        ]);
        assert_eq!(got, [call("a", "one", "{}"), call("b", "two", "{}")]);
    }

    #[test]
    fn names_late_repeated_or_in_pieces() {
        for deltas in [
            [
                r#"[{"index":0,"id":"a","function":{"name":"","arguments":""}}]"#,
                r#"[{"index":0,"function":{"name":"read_file","arguments":"{}"}}]"#,
            ],
            [
                r#"[{"index":0,"id":"a","function":{"arguments":"{"}}]"#,
                r#"[{"index":0,"function":{"name":"read_file","arguments":"}"}}]"#,
            ],
            [
                r#"[{"index":0,"id":"a","function":{"name":"read_file","arguments":"{"}}]"#,
                r#"[{"index":0,"id":"a","function":{"name":"read_file","arguments":"}"}}]"#,
            ],
            [
                r#"[{"index":0,"id":"a","function":{"name":"read_","arguments":""}}]"#,
                r#"[{"index":0,"function":{"name":"file","arguments":"{}"}}]"#,
            ],
            [
                r#"[{"index":0,"id":"a","function":{"name":"read_file","arguments":null}}]"#,
                r#"[{"index":0,"id":null,"function":{"name":null,"arguments":"{}"}}]"#,
            ],
        ] {
            assert_eq!(put_together(&deltas), [call("a", "read_file", "{}")], "{deltas:?}");
        }
    }
}
