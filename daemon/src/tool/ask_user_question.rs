//! `ask_user_question`: questions to the person, answered through an approval.

use agentd_protocol::approval::{Question, QuestionOption};
use agentd_protocol::event::ToolKind;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::arguments::{Arguments, kind_of, schema};
use super::{Prepared, Request, Scene, Tool, ToolError, Work};
use crate::model::message::ToolSpec;
use crate::permission::effect::Effect;

const MAX_QUESTIONS: usize = 4;
const MAX_OPTIONS: usize = 8;

pub(super) struct AskUserQuestion;

impl Tool for AskUserQuestion {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "ask_user_question".to_owned(),
            description: "Asks the person one to four questions and waits for the answers. Use it when the answer changes \
                what you do and you cannot find it out yourself. Offer two to four options where you can, the one you \
                recommend first; free text is always possible, so leave out `Other`. Not for the approval of a plan: \
                use exit_plan_mode."
                .to_owned(),
            input_schema: schema(
                json!({
                    "questions": {
                        "type": "array", "minItems": 1, "maxItems": MAX_QUESTIONS,
                        "items": {
                            "type": "object",
                            "properties": {
                                "question": {"type": "string", "description": "The whole question"},
                                "options": {
                                    "type": "array", "maxItems": MAX_OPTIONS,
                                    "items": {
                                        "type": "object",
                                        "properties": {
                                            "label": {"type": "string", "description": "A few words"},
                                            "description": {"type": "string", "description": "What choosing it means"}
                                        },
                                        "required": ["label"]
                                    }
                                },
                                "multi_select": {"type": "boolean", "description": "Several options may be chosen. Default false"}
                            },
                            "required": ["question"]
                        }
                    }
                }),
                &["questions"],
            ),
        }
    }

    fn kind(&self) -> ToolKind {
        ToolKind::Ask
    }

    fn prepare(&self, arguments: &RawValue, _: &Scene) -> Result<Prepared, ToolError> {
        let arguments = Arguments::parse(arguments)?;
        let items = arguments.array("questions")?;
        if items.is_empty() || items.len() > MAX_QUESTIONS {
            return Err(ToolError(format!(
                "The argument `questions` must hold 1 to {MAX_QUESTIONS} questions, not {}.",
                items.len()
            )));
        }
        let questions: Vec<Question> =
            items.iter().enumerate().map(|(index, item)| question(item, index)).collect::<Result<_, _>>()?;
        let title = match questions.as_slice() {
            [only] => format!("ask: {}", only.question),
            several => format!("ask {} questions", several.len()),
        };
        Ok(Prepared {
            title,
            effects: vec![Effect::AskPerson],
            diff: None,
            work: Work::Ask(Request::AskPerson(questions)),
        })
    }
}

fn question(item: &Value, index: usize) -> Result<Question, ToolError> {
    let at = format!("questions[{index}]");
    let Value::Object(fields) = item else { return Err(wrong(&at, "an object", item)) };
    let question = text(&format!("{at}.question"), fields.get("question"))?;
    let options = match fields.get("options") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(options)) if options.len() > MAX_OPTIONS => {
            return Err(ToolError(format!(
                "The argument `{at}.options` must hold at most {MAX_OPTIONS} options."
            )));
        }
        Some(Value::Array(options)) => options
            .iter()
            .enumerate()
            .map(|(index, item)| option(item, &format!("{at}.options[{index}]")))
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(wrong(&format!("{at}.options"), "an array", other)),
    };
    // Models trained on other tools write it in camel case.
    let multi_select = match fields.get("multi_select").or_else(|| fields.get("multiSelect")) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(other) => return Err(wrong(&format!("{at}.multi_select"), "true or false", other)),
    };
    Ok(Question { question, options, multi_select })
}

fn option(item: &Value, at: &str) -> Result<QuestionOption, ToolError> {
    let fields = match item {
        // The short form says all that is needed.
        Value::String(_) => return Ok(QuestionOption { label: text(at, Some(item))?, description: None }),
        Value::Object(fields) => fields,
        other => return Err(wrong(at, "an object with a `label`", other)),
    };
    let description = match fields.get("description") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) if text.trim().is_empty() => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => return Err(wrong(&format!("{at}.description"), "a string", other)),
    };
    Ok(QuestionOption { label: text(&format!("{at}.label"), fields.get("label"))?, description })
}

fn text(at: &str, value: Option<&Value>) -> Result<String, ToolError> {
    match value {
        Some(Value::String(text)) if !text.trim().is_empty() => Ok(text.clone()),
        Some(Value::String(_)) => {
            Err(ToolError(format!("The argument `{at}` is empty: it must say something.")))
        }
        None => Err(ToolError(format!("The argument `{at}` is missing: it must be a string."))),
        Some(other) => Err(wrong(at, "a string", other)),
    }
}

fn wrong(at: &str, expected: &str, found: &Value) -> ToolError {
    ToolError(format!("The argument `{at}` must be {expected}, not {}.", kind_of(found)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::test_scene::TestScene;

    fn ask(arguments: Value) -> Result<Vec<Question>, String> {
        let prepared = TestScene::new().prepare(&AskUserQuestion, arguments).map_err(|error| error.0)?;
        assert_eq!(prepared.effects, [Effect::AskPerson]);
        match prepared.work {
            Work::Ask(Request::AskPerson(questions)) => Ok(questions),
            _ => panic!("asks for something else"),
        }
    }

    #[test]
    fn questions_are_taken_in_all_their_forms() {
        let questions = ask(json!({"questions": [
            {"question": "Which?", "options": ["a", {"label": "b", "description": "the second", "x": 1}], "multi_select": true},
            {"question": "Why?", "options": null, "header": "ignored"}
        ]}))
        .unwrap();
        let option = |label: &str, description: Option<&str>| QuestionOption {
            label: label.into(),
            description: description.map(Into::into),
        };
        assert_eq!(
            questions,
            [
                Question {
                    question: "Which?".into(),
                    options: vec![option("a", None), option("b", Some("the second"))],
                    multi_select: true
                },
                Question { question: "Why?".into(), options: vec![], multi_select: false },
            ]
        );
    }

    #[test]
    fn wrong_questions_are_refused_by_name() {
        let cases = [
            (json!({}), "`questions` is missing"),
            (json!({"questions": []}), "1 to 4"),
            (json!({"questions": [1, 2, 3, 4, 5]}), "1 to 4"),
            (json!({"questions": ["a"]}), "`questions[0]` must be an object"),
            (json!({"questions": [{"question": " "}]}), "`questions[0].question` is empty"),
            (json!({"questions": [{"question": "q"}, {}]}), "`questions[1].question` is missing"),
            (
                json!({"questions": [{"question": "q", "options": [{"label": 1}]}]}),
                "`questions[0].options[0].label`",
            ),
            (json!({"questions": [{"question": "q", "options": [1,2,3,4,5,6,7,8,9]}]}), "at most 8"),
            (json!({"questions": [{"question": "q", "multi_select": "no"}]}), "`questions[0].multi_select`"),
        ];
        for (arguments, expected) in cases {
            let error = ask(arguments.clone()).unwrap_err();
            assert!(error.contains(expected), "{arguments}: {error}");
        }
    }
}
