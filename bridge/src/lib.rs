//! Tokenizers and chat templates behind a C ABI (`include/coreai_bridge.h`).
//! Nothing unwinds into the caller: every entry point catches panics and returns them as a status with a message.

mod bpe;
mod bpe_file;
mod guard;
mod python;
mod template;
mod tokenizer;
mod vocabulary;

use std::slice;
use std::str;

/// Why a call failed; the discriminants are those of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Malformed = 1,
    InvalidArgument = 2,
    Limit = 3,
    Internal = 4,
}

#[derive(Debug)]
pub struct Failure {
    pub status: Status,
    pub message: String,
}

impl Failure {
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

#[repr(C)]
pub struct Bytes {
    data: *mut u8,
    size: usize,
}

impl Bytes {
    fn from_string(text: String) -> Self {
        let boxed = text.into_bytes().into_boxed_slice();
        let size = boxed.len();
        Self { data: Box::into_raw(boxed).cast(), size }
    }
}

#[repr(C)]
pub struct Ids {
    data: *mut u32,
    size: usize,
}

impl Ids {
    fn from_vec(ids: Vec<u32>) -> Self {
        let boxed = ids.into_boxed_slice();
        let size = boxed.len();
        Self { data: Box::into_raw(boxed).cast(), size }
    }
}

/// SAFETY: `data` points to `size` readable bytes, or `size` is 0.
unsafe fn bytes_at<'a>(data: *const u8, size: usize) -> &'a [u8] {
    if size == 0 || data.is_null() {
        &[]
    } else {
        slice::from_raw_parts(data, size)
    }
}

/// SAFETY: as `bytes_at`.
unsafe fn text_at<'a>(data: *const u8, size: usize) -> Result<&'a str, Failure> {
    str::from_utf8(bytes_at(data, size)).map_err(|e| {
        Failure::new(Status::InvalidArgument, format!("the text is not valid UTF-8 at byte {}", e.valid_up_to()))
    })
}

/// Runs `body`, catching panics, and hands its failure to `error`.
/// SAFETY: `error` is null or valid for a write.
unsafe fn call(error: *mut Bytes, body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    match guard::catch(body) {
        Ok(()) => 0,
        Err(failure) => {
            if !error.is_null() {
                error.write(Bytes::from_string(failure.message));
            }
            failure.status as i32
        }
    }
}

/// # Safety
/// `bytes` came from this crate and is freed once.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_free_bytes(bytes: Bytes) {
    if !bytes.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes.data, bytes.size)));
    }
}

/// # Safety
/// `ids` came from this crate and is freed once.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_free_ids(ids: Ids) {
    if !ids.data.is_null() {
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}

/// # Safety
/// `json` is readable for `size` bytes; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_tokenizer_new(
    json: *const u8,
    size: usize,
    out: *mut *mut tokenizer::Tokenizer,
    error: *mut Bytes,
) -> i32 {
    call(error, || {
        let tokenizer = tokenizer::Tokenizer::from_json(bytes_at(json, size))?;
        out.write(Box::into_raw(Box::new(tokenizer)));
        Ok(())
    })
}

/// # Safety
/// `handle` is null or came from `coreai_bridge_tokenizer_new` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_tokenizer_free(handle: *mut tokenizer::Tokenizer) {
    if !handle.is_null() {
        let _ = guard::catch(|| {
            drop(Box::from_raw(handle));
            Ok(())
        });
    }
}

/// # Safety
/// `handle` is alive; `text` is readable for `size` bytes; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_tokenizer_encode(
    handle: *const tokenizer::Tokenizer,
    text: *const u8,
    size: usize,
    add_special_tokens: i32,
    out: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    call(error, || {
        let ids = (*handle).encode(text_at(text, size)?, add_special_tokens != 0)?;
        out.write(Ids::from_vec(ids));
        Ok(())
    })
}

/// # Safety
/// `handle` is alive; `ids` is readable for `count` elements; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_tokenizer_decode(
    handle: *const tokenizer::Tokenizer,
    ids: *const u32,
    count: usize,
    skip_special_tokens: i32,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    call(error, || {
        let ids = if count == 0 { &[] } else { slice::from_raw_parts(ids, count) };
        let text = (*handle).decode(ids, skip_special_tokens != 0)?;
        out.write(Bytes::from_string(text));
        Ok(())
    })
}

/// # Safety
/// `handle` is alive.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_tokenizer_vocab_size(handle: *const tokenizer::Tokenizer) -> usize {
    (*handle).vocab_size()
}

/// # Safety
/// `handle` is alive; `token` is readable for `size` bytes; `out` is writable.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_tokenizer_token_to_id(
    handle: *const tokenizer::Tokenizer,
    token: *const u8,
    size: usize,
    out: *mut u32,
) -> i32 {
    let found = guard::catch(|| Ok((*handle).token_to_id(text_at(token, size)?)));
    match found {
        Ok(Some(id)) => {
            out.write(id);
            1
        }
        _ => 0,
    }
}

/// # Safety
/// `handle` is alive; `out` is writable.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_tokenizer_id_to_token(
    handle: *const tokenizer::Tokenizer,
    id: u32,
    out: *mut Bytes,
) -> i32 {
    match guard::catch(|| Ok((*handle).id_to_token(id))) {
        Ok(Some(token)) => {
            out.write(Bytes::from_string(token));
            1
        }
        _ => 0,
    }
}

/// # Safety
/// `handle` is alive; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_tokenizer_special_ids(
    handle: *const tokenizer::Tokenizer,
    out: *mut Ids,
    error: *mut Bytes,
) -> i32 {
    call(error, || {
        out.write(Ids::from_vec((*handle).special_ids().to_vec()));
        Ok(())
    })
}

/// # Safety
/// `source` is readable for `size` bytes; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_template_new(
    source: *const u8,
    size: usize,
    out: *mut *mut template::Template,
    error: *mut Bytes,
) -> i32 {
    call(error, || {
        let template = template::Template::compile(text_at(source, size)?)?;
        out.write(Box::into_raw(Box::new(template)));
        Ok(())
    })
}

/// # Safety
/// `handle` is null or came from `coreai_bridge_template_new` and is freed once.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_template_free(handle: *mut template::Template) {
    if !handle.is_null() {
        let _ = guard::catch(|| {
            drop(Box::from_raw(handle));
            Ok(())
        });
    }
}

/// # Safety
/// `handle` is alive; `variables` is readable for `size` bytes; `out` and `error` are writable.
#[no_mangle]
pub unsafe extern "C" fn coreai_bridge_template_render(
    handle: *const template::Template,
    variables: *const u8,
    size: usize,
    out: *mut Bytes,
    error: *mut Bytes,
) -> i32 {
    call(error, || {
        let text = (*handle).render(text_at(variables, size)?)?;
        out.write(Bytes::from_string(text));
        Ok(())
    })
}
