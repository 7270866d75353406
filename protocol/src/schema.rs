//! JSON Schema of the whole protocol, made from the types. Checked in under `protocol/schema/` and compared in CI, so a
//! change of the wire is visible in review.

use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::error::ErrorCode;
use crate::event::Event;
use crate::{PROTOCOL_VERSION, method};

/// Methods, events, error codes and the types they share, as one document.
#[must_use]
pub fn document() -> Value {
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
    let mut methods = serde_json::Map::new();
    method::schemas(&mut generator, |name, params, result| {
        methods.insert(name.to_owned(), json!({"params": params, "result": result}));
    });
    let event = generator.subschema_for::<Event>();
    let errors: serde_json::Map<String, Value> =
        ErrorCode::ALL.iter().map(|code| (code.kind().to_owned(), json!(code.code()))).collect();
    let mut definitions = generator.take_definitions(true);
    // Sorted, so that the file does not depend on the order in which types are met.
    let definitions: std::collections::BTreeMap<String, Value> =
        std::mem::take(&mut definitions).into_iter().collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agentd protocol",
        "version": PROTOCOL_VERSION,
        "methods": methods,
        "events": event,
        "errors": errors,
        "$defs": definitions,
    })
}
