//! The JSON Schema of a settings file, made from the table of keys, for editors.

use serde_json::{Map, Value, json};

use super::keys::{self, Key, Scope, Shape};

/// What a settings file may hold. `x-agentd-scope` says of each key in which files it counts.
#[must_use]
pub fn schema() -> Value {
    let mut root = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agentd settings",
        "description": "~/.config/agentd/config.toml, and .agentd/config.toml in a project.",
        "type": "object",
        "additionalProperties": false,
        "properties": {},
    });
    for key in keys::ALL {
        let words: Vec<&str> = key.path.split('.').collect();
        insert(&mut root, &words, node(*key));
    }
    root
}

fn insert(at: &mut Value, words: &[&str], node: Value) {
    let Some((first, rest)) = words.split_first() else { return };
    let below = if *first == "*" { &mut at["additionalProperties"] } else { &mut at["properties"][*first] };
    if rest.is_empty() {
        *below = node;
        return;
    }
    if !below.is_object() {
        *below = json!({ "type": "object", "additionalProperties": false, "properties": {} });
    }
    insert(below, rest, node);
}

fn node(key: Key) -> Value {
    let kind = match key.shape {
        Shape::Text => json!({ "type": "string", "minLength": 1 }),
        Shape::Choice(words) => json!({ "type": "string", "enum": words }),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Whole => json!({ "type": "integer", "minimum": 1 }),
        Shape::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Shape::Table => json!({ "type": "object", "additionalProperties": false, "properties": {} }),
        Shape::Reserved => json!({}),
    };
    let mut node = match kind {
        Value::Object(node) => node,
        _ => Map::new(),
    };
    let counts = match key.scope {
        Scope::User => "Counts in your own file only.",
        Scope::Trusted => "In a project's file it counts once you trust it.",
        Scope::Project => "Counts in a project's file, too.",
    };
    node.insert("description".into(), format!("{} {counts}", key.about).into());
    node.insert("x-agentd-scope".into(), key.scope.name().into());
    Value::Object(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_what_the_table_of_keys_says() {
        let published: Value =
            serde_json::from_str(include_str!("../../../protocol/schema/config.json")).unwrap();
        assert_eq!(
            published,
            schema(),
            "write it anew: target/debug/agentd schema --settings >protocol/schema/config.json"
        );
    }

    #[test]
    fn every_key_is_in_it_with_its_scope() {
        for key in keys::ALL {
            let path = key.path.replace(".*", "/additionalProperties").replace('.', "/properties/");
            let schema = schema();
            let found = schema.pointer(&format!("/properties/{path}")).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(found["x-agentd-scope"], key.scope.name(), "{path}");
            assert!(found["description"].as_str().unwrap().starts_with(key.about), "{path}");
        }
    }
}
