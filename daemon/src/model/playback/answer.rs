//! Which rule answers a request, and with what. Depends on nothing but the script and the request.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::script::{BUILT_IN, Pick, Place, Reply, Rule, Script, TextCheck, Value, When};
use super::view::View;

/// A reply with its values filled in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) thinking: String,
    pub(super) text: String,
    pub(super) calls: Vec<AnswerCall>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct AnswerCall {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
}

/// The position of the rule that answers.
pub(super) fn matching(script: &Script, view: &View) -> Option<usize> {
    script.rules.iter().position(|rule| fits(script, rule, view))
}

fn fits(script: &Script, rule: &Rule, view: &View) -> bool {
    let When { answers, total_answers, after, last_call, not_called, result_is_error, texts, has } =
        &rule.when;
    answers.is_none_or(|wanted| view.answers() == wanted)
        && total_answers.is_none_or(|wanted| view.total_answers() == wanted)
        && (after.is_empty() || after.iter().any(|name| view.newest_ids_begin(&id_prefix(name))))
        && last_call.as_ref().is_none_or(|name| view.last_call() == Some(name))
        && !not_called.iter().any(|name| view.was_called(name))
        && result_is_error.is_none_or(|wanted| view.result_is_error() == wanted)
        && texts.iter().all(|check| holds(check, view))
        && has.iter().all(|name| !value(script, rule, name, view).is_empty())
}

fn holds(check: &TextCheck, view: &View) -> bool {
    let texts = view.texts(check.r#in);
    let contains = |wanted: &String| texts.iter().any(|text| text.contains(wanted.as_str()));
    let matches = |wanted: &super::script::Pattern| texts.iter().any(|text| wanted.is_in(text));
    check.contains.as_ref().is_none_or(contains)
        && check.matches.as_ref().is_none_or(matches)
        && !check.lacks.as_ref().is_some_and(contains)
        && !check.lacks_match.as_ref().is_some_and(matches)
}

pub(super) fn answer(script: &Script, rule: &Rule, view: &View) -> Answer {
    let Reply { thinking, text, calls, .. } = &rule.reply;
    let fill = |text: &str| fill(text, &|name| value(script, rule, name, view));
    let prefix = id_prefix(&rule.name);
    let calls = calls.iter().enumerate().map(|(at, call)| AnswerCall {
        id: format!("{prefix}{}_{at}", view.total_answers()),
        name: call.name.clone(),
        arguments: call.arguments_text.clone().unwrap_or_else(|| match &call.arguments {
            Json::Null => "{}".to_owned(),
            arguments => fill_json(arguments, &fill).to_string(),
        }),
    });
    Answer { thinking: fill(thinking), text: fill(text), calls: calls.collect() }
}

/// What the ids of a rule's calls begin with. A context keeps the ids, so it tells which rule spoke last.
fn id_prefix(rule: &str) -> String {
    format!("call_{rule}_")
}

fn value(script: &Script, rule: &Rule, name: &str, view: &View) -> String {
    match rule.values.get(name).or_else(|| script.values.get(name)) {
        Some(value) => take(value, view),
        None if script.constants.contains_key(name) => script.constants[name].clone(),
        None => match BUILT_IN.iter().position(|known| *known == name) {
            Some(0) => view.texts(Place::Prompt).concat(),
            Some(1) => view.texts(Place::Result).join("\n"),
            Some(2) => view.model.clone(),
            Some(_) => view.answers().to_string(),
            None => String::new(),
        },
    }
}

fn take(value: &Value, view: &View) -> String {
    let mut groups = view.texts(value.r#in).into_iter().flat_map(|text| value.matches.groups(text));
    let found = match value.pick {
        Pick::First => groups.next(),
        Pick::Last => groups.last(),
    };
    found.map_or_else(|| value.default.clone(), |found| found.trim().to_owned())
}

/// `text` with every `{{name}}` replaced. What is filled in is not looked at again.
fn fill(text: &str, value: &dyn Fn(&str) -> String) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else { break };
        filled.push_str(before);
        filled.push_str(&value(name.trim()));
        rest = after;
    }
    filled.push_str(rest);
    filled
}

fn fill_json(json: &Json, fill: &dyn Fn(&str) -> String) -> Json {
    match json {
        Json::String(text) => Json::String(fill(text)),
        Json::Array(list) => list.iter().map(|item| fill_json(item, fill)).collect(),
        Json::Object(fields) => {
            let filled: BTreeMap<&String, Json> =
                fields.iter().map(|(name, field)| (name, fill_json(field, fill))).collect();
            filled
                .into_iter()
                .map(|(name, field)| (name.clone(), field))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view(messages: &Json) -> View {
        View::of_openai(&json!({"model": "m", "messages": messages}))
    }

    #[test]
    fn rules_are_tried_in_order_and_values_filled_in() {
        let script = Script::parse(
            r#"{
            "values": {"path": {"in": "user", "matches": "^Plan file: (.+)$"}},
            "rules": [
                {"name": "second", "when": {"after": ["first"]}, "reply": {"text": "done with {{ path }}: {{result}}"}},
                {"name": "first", "when": {"has": ["path"], "answers": 0},
                 "reply": {"calls": [{"name": "write_file", "arguments": {"file_path": "{{path}}", "n": [1, "{{prompt}}"]}}]}},
                {"name": "other", "reply": {"text": "{{no"}}
            ]}"#,
        )
        .unwrap();
        let start = json!([{"role": "user", "content": "go\nPlan file: /a b/{{prompt}}.md\n"}]);
        let at = matching(&script, &view(&start)).unwrap();
        let first = answer(&script, &script.rules[at], &view(&start));
        assert_eq!(first.calls[0].id, "call_first_0_0");
        let expected =
            json!({"file_path": "/a b/{{prompt}}.md", "n": [1, "go\nPlan file: /a b/{{prompt}}.md\n"]});
        assert_eq!(serde_json::from_str::<Json>(&first.calls[0].arguments).unwrap(), expected);

        let next = json!([
            {"role": "user", "content": "Plan file: /p"},
            {"role": "assistant", "tool_calls": [{"id": "call_first_0_0", "function": {"name": "write_file", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "call_first_0_0", "content": "fine"},
        ]);
        let at = matching(&script, &view(&next)).unwrap();
        assert_eq!(answer(&script, &script.rules[at], &view(&next)).text, "done with /p: fine");

        let other = json!([{"role": "user", "content": "hi"}]);
        let at = matching(&script, &view(&other)).unwrap();
        assert_eq!(answer(&script, &script.rules[at], &view(&other)).text, "{{no");
    }

    #[test]
    fn mistakes_in_a_script_are_named() {
        for (json, expected) in [
            (r#"{"rules": [{"name": "A"}]}"#, "rule `A`"),
            (r#"{"rules": [{"name": "a"}, {"name": "a"}]}"#, "rule `a`"),
            (r#"{"rules": [{"name": "a", "when": {"after": ["b"]}}]}"#, "`b`, which is no rule"),
            (r#"{"rules": [{"name": "a", "reply": {"text": "{{x}}"}}]}"#, "the value `x`"),
        ] {
            let error = Script::parse(json).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        for json in [
            r#"{"rules": [{"name": "a", "wen": {}}]}"#,
            r#"{"rules": [], "values": {"x": {"in": "any", "matches": "("}}}"#,
        ] {
            assert!(Script::parse(json).is_err());
        }
    }
}
