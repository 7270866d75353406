//! The list of tools as models get it.

use std::sync::Arc;

use serde_json::Value;

use super::builtin;
use crate::permission::rules::TOOLS;

#[test]
fn the_order_of_the_tools_is_fixed() {
    let names: Vec<String> = builtin(&Arc::default()).iter().map(|tool| tool.spec().name).collect();
    assert_eq!(names, TOOLS, "a rule about a tool finds it by this list");
}

#[test]
fn every_tool_has_a_usable_specification_and_always_the_same() {
    for tool in builtin(&Arc::default()) {
        let spec = tool.spec();
        let schema: Value = serde_json::from_str(spec.input_schema.get()).unwrap();
        assert_eq!(schema["type"], "object", "{}", spec.name);
        let properties = schema["properties"].as_object().unwrap();
        for required in schema["required"].as_array().unwrap() {
            assert!(properties.contains_key(required.as_str().unwrap()), "{}: {required}", spec.name);
        }
        assert!((50..700).contains(&spec.description.len()), "{}: {}", spec.name, spec.description.len());
        let again = tool.spec();
        assert_eq!(spec.input_schema.get(), again.input_schema.get());
    }
}
