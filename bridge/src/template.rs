//! One compiled chat template, rendered under limits with the settings that Hugging Face gives Jinja.

use crate::python::{float_str, json_dumps, strftime_now, JsonStyle};
use crate::{Failure, Status};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{escape_formatter, AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior};
use serde_json::Value as Json;
use std::fmt;
use std::thread;

/// Instructions plus 1/64 of the bytes that a render may produce; each byte of input adds to it.
const BASE_FUEL: u64 = 1_000_000;
const INPUT_BYTES_PER_FUEL: u64 = 16;
const RECURSION_LIMIT: usize = 250;
/// A template can nest lists as deep as its fuel allows, and dropping those recurses; untouched pages cost nothing.
const STACK_SIZE: usize = 256 << 20;
const NAME: &str = "chat_template";

/// Marks an error that the template raised itself.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

pub struct Template {
    environment: Environment<'static>,
}

impl Template {
    pub fn compile(source: &str) -> Result<Self, Failure> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|e| Failure::new(Status::Internal, e.to_string()))?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_undefined_behavior(UndefinedBehavior::Lenient);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_recursion_limit(RECURSION_LIMIT);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", |format: String| strftime_now(&format));
        environment.add_filter("tojson", tojson);
        environment.add_test("iterable", is_iterable);
        environment.add_test("sequence", is_sequence);
        environment.set_formatter(write_like_python);
        let source = replace_generation_tags(source);
        let compiled = on_large_stack(move || {
            let result = environment.add_template_owned(NAME, source);
            result.map(|()| environment).map_err(|e| failure_of(&e, Status::Malformed))
        })?;
        Ok(Self { environment: compiled })
    }

    pub fn render(&self, variables: &str) -> Result<String, Failure> {
        let json: Json = serde_json::from_str(variables).map_err(|e| {
            Failure::new(Status::InvalidArgument, format!("the template's variables are not JSON: {e}"))
        })?;
        if !json.is_object() {
            return Err(Failure::new(Status::InvalidArgument, "the template's variables are not a JSON object"));
        }
        let fuel = BASE_FUEL + variables.len() as u64 / INPUT_BYTES_PER_FUEL;
        on_large_stack(|| {
            // Cheap: the environment shares its templates, filters and functions.
            let mut environment = self.environment.clone();
            environment.set_fuel(Some(fuel));
            let template = environment.get_template(NAME).map_err(|e| failure_of(&e, Status::Internal))?;
            template.render(value_of(json)).map_err(|e| failure_of(&e, Status::InvalidArgument))
        })
    }
}

/// Runs `body` on a thread of its own with a large stack, and carries a panic to the caller.
fn on_large_stack<T: Send>(body: impl FnOnce() -> Result<T, Failure> + Send) -> Result<T, Failure> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .stack_size(STACK_SIZE)
            .spawn_scoped(scope, || crate::guard::catch(body))
            .map_err(|e| Failure::new(Status::Internal, format!("no thread for the template: {e}")))?;
        worker.join().unwrap_or_else(|_| Err(Failure::new(Status::Internal, "a panic in a template")))
    })
}

/// Jinja's tests: strings and mappings are sequences to it, and None cannot be iterated.
fn is_sequence(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}

fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

fn write_like_python(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        let text = float_str(f64::try_from(value.clone())?);
        return out.write_str(&text).map_err(|_| Error::from(ErrorKind::WriteFailure));
    }
    escape_formatter(out, state, value)
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn tojson(value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<String, Error> {
    let indent = match indent {
        Some(indent) => Some(indent),
        None => kwargs.get("indent")?,
    };
    let indent = match indent {
        None => None,
        Some(value) if value.kind() == ValueKind::None => None,
        Some(value) if value.kind() == ValueKind::String => value.as_str().map(str::to_string),
        Some(value) => Some(" ".repeat(usize::try_from(value)?.min(64))),
    };
    let separators: Option<Vec<String>> = kwargs.get("separators")?;
    // Python's json.dumps drops the space after an item when it breaks lines.
    let default_item = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(Error::new(ErrorKind::InvalidOperation, "tojson: separators takes two strings")),
        None => (default_item.to_string(), ": ".to_string()),
    };
    let style = JsonStyle {
        indent,
        item_separator,
        key_separator,
        ensure_ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    json_dumps(value, &style)
}

fn failure_of(error: &Error, otherwise: Status) -> Failure {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = error;
    while let Some(current) = source {
        if let Some(raised) = current.downcast_ref::<Raised>() {
            return Failure::new(Status::InvalidArgument, raised.0.clone());
        }
        if let Some(template_error) = current.downcast_ref::<Error>() {
            innermost = template_error;
        }
        source = current.source();
    }
    let detail = innermost.detail().unwrap_or("");
    let limit = innermost.kind() == ErrorKind::OutOfFuel || detail.contains("recursion limit");
    let mut message = innermost.kind().to_string();
    if !detail.is_empty() {
        message += &format!(": {detail}");
    }
    if let Some(line) = innermost.line() {
        message += &format!(" (line {line}");
        if let (Some(range), Some(text)) = (innermost.range(), innermost.template_source()) {
            let start = range.start.min(text.len());
            let column = start - text.as_bytes()[..start].iter().rposition(|&b| b == b'\n').map_or(0, |p| p + 1) + 1;
            message += &format!(", column {column}");
        }
        message += ")";
    }
    Failure::new(if limit { Status::Limit } else { otherwise }, message)
}

fn value_of(json: Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(flag) => Value::from(flag),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(integer), _) => Value::from(integer),
            (None, Some(integer)) => Value::from(integer),
            _ => Value::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text),
        Json::Array(items) => Value::from(items.into_iter().map(value_of).collect::<Vec<_>>()),
        Json::Object(members) => Value::from_pairs(members.into_iter().map(|(key, item)| (key, value_of(item)))),
    }
}

/// `{% generation %}` marks the assistant's text for training masks; when rendering it is a block that changes nothing.
fn replace_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        out.push_str(&rest[..start + 2]);
        rest = &rest[start + 2..];
        let Some(end) = rest.find("%}") else { break };
        let body = &rest[..end];
        let name = body.trim_start_matches(['-', '+']).trim_end_matches(['-', '+']).trim();
        let replacement = match name {
            "generation" => Some("if true"),
            "endgeneration" => Some("endif"),
            _ => None,
        };
        if let Some(replacement) = replacement {
            out.push_str(&body.replacen(name, replacement, 1));
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    out
}
