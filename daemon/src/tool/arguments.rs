//! The arguments of a call, read one by one. Errors name the argument and what was expected, so that a model can repeat
//! the call rightly. Arguments that nobody asks for are ignored.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::ToolError;

pub(crate) struct Arguments(Map<String, Value>);

impl Arguments {
    pub(crate) fn parse(raw: &RawValue) -> Result<Self, ToolError> {
        match serde_json::from_str(raw.get()) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(other) => {
                Err(ToolError(format!("The arguments must be a JSON object, not {}.", kind_of(&other))))
            }
            Err(error) => Err(ToolError(format!("The arguments are no valid JSON: {error}."))),
        }
    }

    pub(crate) fn string(&self, name: &str) -> Result<&str, ToolError> {
        self.optional_string(name)?.ok_or_else(|| missing(name, "a string"))
    }

    pub(crate) fn optional_string(&self, name: &str) -> Result<Option<&str>, ToolError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, "a string", other)),
        }
    }

    pub(crate) fn optional_bool(&self, name: &str) -> Result<Option<bool>, ToolError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(wrong(name, "true or false", other)),
        }
    }

    /// A whole number from 1. `3.0` is one.
    pub(crate) fn optional_count(&self, name: &str) -> Result<Option<usize>, ToolError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = match value {
            Value::Number(number) => number.as_u64().or_else(|| {
                let float = number.as_f64()?;
                // Exact below 2^53, and nothing counts further.
                (float.fract() == 0.0 && (1.0..9e15).contains(&float)).then_some(float as u64)
            }),
            _ => None,
        };
        match number.and_then(|number| usize::try_from(number).ok()) {
            Some(number) if number > 0 => Ok(Some(number)),
            _ => Err(wrong(name, "a whole number, 1 or more", value)),
        }
    }

    pub(crate) fn array(&self, name: &str) -> Result<&[Value], ToolError> {
        match self.get(name) {
            None => Err(missing(name, "an array")),
            Some(Value::Array(items)) => Ok(items),
            Some(other) => Err(wrong(name, "an array", other)),
        }
    }

    /// Absent and `null` are the same.
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }
}

fn missing(name: &str, expected: &str) -> ToolError {
    ToolError(format!("The argument `{name}` is missing: it must be {expected}."))
}

fn wrong(name: &str, expected: &str, found: &Value) -> ToolError {
    ToolError(format!("The argument `{name}` must be {expected}, not {}.", kind_of(found)))
}

pub(crate) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The schema of a tool's arguments, from its properties and the names of those required.
pub(crate) fn schema(properties: Value, required: &[&str]) -> Box<RawValue> {
    let schema = serde_json::json!({ "type": "object", "properties": properties, "required": required });
    // A `Value` always has a JSON text.
    serde_json::value::to_raw_value(&schema).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(text: &str) -> Result<Arguments, ToolError> {
        Arguments::parse(&RawValue::from_string(text.to_owned()).unwrap())
    }

    #[test]
    fn wrong_arguments_are_named_with_what_was_expected() {
        let given = arguments(r#"{"n":0,"s":5,"b":"yes","a":{},"null":null,"f":2.5,"neg":-1}"#).unwrap();
        let cases = [
            (given.string("s").err(), "The argument `s` must be a string, not the number 5."),
            (given.string("x").err(), "The argument `x` is missing: it must be a string."),
            (given.string("null").err(), "The argument `null` is missing: it must be a string."),
            (given.optional_bool("b").err(), "The argument `b` must be true or false, not a string."),
            (
                given.optional_count("n").err(),
                "The argument `n` must be a whole number, 1 or more, not the number 0.",
            ),
            (
                given.optional_count("f").err(),
                "The argument `f` must be a whole number, 1 or more, not the number 2.5.",
            ),
            (
                given.optional_count("neg").err(),
                "The argument `neg` must be a whole number, 1 or more, not the number -1.",
            ),
            (given.array("a").err(), "The argument `a` must be an array, not an object."),
            (arguments("[]").err(), "The arguments must be a JSON object, not an array."),
        ];
        for (error, expected) in cases {
            assert_eq!(error.unwrap().0, expected);
        }
    }

    #[test]
    fn right_arguments_are_taken_and_unknown_ones_ignored() {
        let given = arguments(r#"{"n":3,"f":3.0,"s":"","b":true,"other":1}"#).unwrap();
        assert_eq!(given.optional_count("n").unwrap(), Some(3));
        assert_eq!(given.optional_count("f").unwrap(), Some(3));
        assert_eq!(given.optional_count("none").unwrap(), None);
        assert_eq!(given.string("s").unwrap(), "");
        assert_eq!(given.optional_bool("b").unwrap(), Some(true));
    }
}
