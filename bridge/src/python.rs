//! What chat templates expect of Python: `json.dumps` and `strftime`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use std::ffi::CString;
use std::fmt::Write;

/// The options of `json.dumps` that the `tojson` filter passes on.
pub struct JsonStyle {
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub ensure_ascii: bool,
    pub sort_keys: bool,
}

const MAX_DEPTH: usize = 128;

pub fn json_dumps(value: &Value, style: &JsonStyle) -> Result<String, Error> {
    let mut out = String::new();
    write_json(value, style, 0, &mut out)?;
    Ok(out)
}

fn write_json(value: &Value, style: &JsonStyle, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is nested too deeply"));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => write!(out, "{value}").unwrap_or(()),
        ValueKind::Number => out.push_str(&float_json(f64::try_from(value.clone())?)),
        ValueKind::String => write_json_string(value.as_str().unwrap_or(""), style.ensure_ascii, out),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            write_items(('[', ']'), items.len(), style, depth, out, |index, out| {
                write_json(&items[index], style, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if style.sort_keys {
                keys.sort();
            }
            write_items(('{', '}'), keys.len(), style, depth, out, |index, out| {
                write_key(&keys[index], style, out)?;
                out.push_str(&style.key_separator);
                write_json(&value.get_item(&keys[index])?, style, depth + 1, out)
            })?;
        }
        kind => {
            let message = format!("tojson: a value of kind {kind} is not JSON serializable");
            return Err(Error::new(ErrorKind::InvalidOperation, message));
        }
    }
    Ok(())
}

fn write_items(
    brackets: (char, char),
    count: usize,
    style: &JsonStyle,
    depth: usize,
    out: &mut String,
    mut write_item: impl FnMut(usize, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    out.push(brackets.0);
    for index in 0..count {
        if index > 0 {
            out.push_str(&style.item_separator);
        }
        if let Some(indent) = &style.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth + 1));
        }
        write_item(index, out)?;
    }
    if let (Some(indent), true) = (&style.indent, count > 0) {
        out.push('\n');
        out.push_str(&indent.repeat(depth));
    }
    out.push(brackets.1);
    Ok(())
}

fn write_key(key: &Value, style: &JsonStyle, out: &mut String) -> Result<(), Error> {
    if let Some(text) = key.as_str() {
        write_json_string(text, style.ensure_ascii, out);
        return Ok(());
    }
    match key.kind() {
        ValueKind::None | ValueKind::Bool | ValueKind::Number => {
            out.push('"');
            write_json(key, style, 0, out)?;
            out.push('"');
            Ok(())
        }
        kind => Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: a key of kind {kind}"))),
    }
}

fn write_json_string(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || (ensure_ascii && !(' '..='~').contains(&c)) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").unwrap_or(());
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// `json.dumps` of a float, which spells the values that JSON lacks as JavaScript does.
fn float_json(number: f64) -> String {
    match number {
        n if n.is_nan() => "NaN".into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        n => float_str(n),
    }
}

/// Python's `str` of a float: shortest digits, exponent form below 1e-4 and from 1e16 on.
pub fn float_str(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() { "nan".into() } else { format!("{number}") };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if number != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{number}");
    if plain.contains('.') {
        plain
    } else {
        plain + ".0"
    }
}

/// The local time by a `strftime` format of the C library.
pub fn strftime_now(format: &str) -> Result<String, Error> {
    const MAX_FORMAT: usize = 256;
    const MAX_TEXT: usize = 16 * 1024;
    if format.is_empty() {
        return Ok(String::new());
    }
    if format.len() > MAX_FORMAT || format.contains('\0') || has_wide_field(format) {
        return Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: the format is too long or malformed"));
    }
    let c_format = CString::new(format).map_err(|_| Error::from(ErrorKind::InvalidOperation))?;
    let mut text = vec![0u8; MAX_TEXT];
    // SAFETY: both calls write only into the buffers given, and the format ends with a zero.
    let length = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut parts).is_null() {
            return Err(Error::new(ErrorKind::InvalidOperation, "strftime_now: no local time"));
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), c_format.as_ptr(), &parts)
    };
    text.truncate(length);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A field width (`%1000000d`) would make the C library pad without end.
fn has_wide_field(format: &str) -> bool {
    let bytes = format.as_bytes();
    bytes.windows(3).any(|w| w.iter().all(u8::is_ascii_digit)) && bytes.contains(&b'%')
}
