//! One `tokenizer.json` with what an untrusted file must not do taken away.

use crate::bpe::Bpe;
use crate::{guard, Failure, Status};
use serde_json::Value;
use std::collections::BTreeSet;
use std::str;
use tokenizers::{
    Decoder, DecoderWrapper, Model, ModelWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    TokenizerImpl,
};

/// How many times longer than its input the file's replace rules may make a text.
const MAX_GROWTH: f64 = 4096.0;
/// A post-processor may add a handful of tokens, never a flood.
const MAX_TEMPLATE_PIECES: usize = 4096;

/// The crate's steps around a model.
type Pipeline<M> =
    TokenizerImpl<M, NormalizerWrapper, PreTokenizerWrapper, PostProcessorWrapper, DecoderWrapper>;

pub struct Tokenizer {
    inner: Box<dyn Steps>,
    special_ids: Vec<u32>,
    special: BTreeSet<u32>,
    byte_fallback: bool,
}

impl Tokenizer {
    pub fn from_json(json: &[u8]) -> Result<Self, Failure> {
        match Self::read_bpe(json) {
            Some(pipeline) => Self::from_pipeline(pipeline),
            None => Self::from_pipeline(Self::read_any(json)?),
        }
    }

    /// A file whose model is plainly a BPE, over our own tables: they load in a fraction of the time of the crate's.
    fn read_bpe(json: &[u8]) -> Option<Pipeline<Bpe>> {
        let json = str::from_utf8(json).ok()?;
        let result = guard::catch(|| {
            serde_json::from_str(json).map_err(|e| Failure::new(Status::Malformed, e.to_string()))
        });
        result.ok()
    }

    /// Any file, by the crate: every other model, and the error of a bad file.
    fn read_any(json: &[u8]) -> Result<Pipeline<ModelWrapper>, Failure> {
        let mut pipeline = blame_file(|| {
            tokenizers::Tokenizer::from_bytes(json).map_err(|e| Failure::new(Status::Malformed, e.to_string()))
        })?
        .into_inner();
        if let ModelWrapper::BPE(bpe) = pipeline.get_model() {
            if bpe.dropout.is_some() {
                // Dropout makes encoding random; the same text must always give the same ids.
                let mut bpe = bpe.clone();
                bpe.dropout = None;
                pipeline.with_model(bpe);
            }
        }
        Ok(pipeline)
    }

    fn from_pipeline<M: Model + Send + Sync + 'static>(mut pipeline: Pipeline<M>) -> Result<Self, Failure> {
        // Padding and truncation are a caller's business (a fixed length in the file would cut prompts silently).
        pipeline.with_padding(None);
        pipeline.with_truncation(None).map_err(|e| Failure::new(Status::Malformed, e.to_string()))?;
        check_growth(&pipeline)?;
        // Some rules fail on every text, a template that names a token of no id for one: found here, not in a prompt.
        blame_file(|| {
            let _ = pipeline.encode_fast("a", true);
            Ok(())
        })?;
        let added = pipeline.get_added_vocabulary().get_added_tokens_decoder();
        let special: BTreeSet<u32> = added.iter().filter(|(_, t)| t.special).map(|(id, _)| *id).collect();
        let special_ids = special.iter().copied().collect();
        let byte_fallback = pipeline.get_decoder().is_some_and(has_byte_fallback);
        Ok(Self { inner: Box::new(pipeline), special_ids, special, byte_fallback })
    }

    pub fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, Failure> {
        blame_file(|| {
            self.inner.encode(text, add_special_tokens).map_err(|e| Failure::new(Status::InvalidArgument, e.to_string()))
        })
    }

    pub fn decode(&self, ids: &[u32], skip_special_tokens: bool) -> Result<String, Failure> {
        let mut tokens = Vec::with_capacity(ids.len());
        for &id in ids {
            if skip_special_tokens && self.special.contains(&id) {
                continue;
            }
            if let Some(token) = self.inner.id_to_token(id) {
                tokens.push(token);
            }
        }
        let Some(decoder) = self.inner.decoder() else { return Ok(tokens.join(" ")) };
        if self.byte_fallback {
            tokens = mend_byte_runs(tokens);
        }
        blame_file(|| decoder.decode(tokens).map_err(|e| Failure::new(Status::InvalidArgument, e.to_string())))
    }

    pub fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    pub fn special_ids(&self) -> &[u32] {
        &self.special_ids
    }
}

/// What a tokenizer asks of its pipeline, whatever the model.
trait Steps: Send + Sync {
    fn encode(&self, text: &str, add_special_tokens: bool) -> tokenizers::Result<Vec<u32>>;
    fn vocab_size(&self) -> usize;
    fn token_to_id(&self, token: &str) -> Option<u32>;
    fn id_to_token(&self, id: u32) -> Option<String>;
    fn decoder(&self) -> Option<&DecoderWrapper>;
}

impl<M: Model + Send + Sync> Steps for Pipeline<M> {
    fn encode(&self, text: &str, add_special_tokens: bool) -> tokenizers::Result<Vec<u32>> {
        Ok(self.encode_fast(text, add_special_tokens)?.get_ids().to_vec())
    }

    fn vocab_size(&self) -> usize {
        let (model, added) = (self.get_model(), self.get_added_vocabulary().get_added_tokens_decoder());
        model.get_vocab_size() + added.values().filter(|t| model.token_to_id(&t.content).is_none()).count()
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        Self::token_to_id(self, token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        Self::id_to_token(self, id)
    }

    fn decoder(&self) -> Option<&DecoderWrapper> {
        self.get_decoder()
    }
}

/// The crate panics on files that break its assumptions: the file is to blame, not the caller.
fn blame_file<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    guard::catch(body).map_err(|failure| match failure.status {
        Status::Internal => Failure::new(Status::Malformed, failure.message),
        _ => failure,
    })
}

fn has_byte_fallback(decoder: &DecoderWrapper) -> bool {
    match decoder {
        DecoderWrapper::ByteFallback(_) => true,
        DecoderWrapper::Sequence(sequence) => sequence.get_decoders().iter().any(has_byte_fallback),
        _ => false,
    }
}

fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

/// The crate turns a whole run of byte tokens into replacement characters when one byte of it is wrong. Here the valid
/// characters of such a run stay, and each invalid sequence becomes one replacement character, as in a UTF-8 decoder.
fn mend_byte_runs(tokens: Vec<String>) -> Vec<String> {
    let mut out = Vec::with_capacity(tokens.len());
    let mut run: Vec<u8> = Vec::new();
    for token in tokens {
        if let Some(byte) = byte_of(&token) {
            run.push(byte);
        } else {
            flush_run(&mut run, &mut out);
            out.push(token);
        }
    }
    flush_run(&mut run, &mut out);
    out
}

fn flush_run(run: &mut Vec<u8>, out: &mut Vec<String>) {
    for chunk in run.utf8_chunks() {
        out.extend(chunk.valid().bytes().map(|byte| format!("<0x{byte:02X}>")));
        if !chunk.invalid().is_empty() {
            out.push("\u{FFFD}".to_string());
        }
    }
    run.clear();
}

/// Refuses chains of replace rules that blow a text up, and post-processors that add a flood of tokens.
fn check_growth<M: Model>(inner: &Pipeline<M>) -> Result<(), Failure> {
    let parts = [
        serde_json::to_value(inner.get_normalizer()),
        serde_json::to_value(inner.get_pre_tokenizer()),
        serde_json::to_value(inner.get_decoder()),
    ];
    for part in parts {
        let value = part.map_err(|e| Failure::new(Status::Malformed, e.to_string()))?;
        if growth(&value) > MAX_GROWTH {
            let message = format!("its replace rules may make a text more than {MAX_GROWTH} times longer");
            return Err(Failure::new(Status::Limit, message));
        }
    }
    let post = serde_json::to_value(inner.get_post_processor())
        .map_err(|e| Failure::new(Status::Malformed, e.to_string()))?;
    if count_nodes(&post) > MAX_TEMPLATE_PIECES {
        return Err(Failure::new(Status::Limit, "its post-processor has too many pieces"));
    }
    Ok(())
}

/// An upper bound of output bytes per input byte: products along a chain of rules.
fn growth(value: &Value) -> f64 {
    match value {
        Value::Object(members) => {
            let own = ["content", "prepend", "replacement", "prefix", "suffix"]
                .iter()
                .filter_map(|key| members.get(*key).and_then(Value::as_str))
                .map(|text| text.len().max(1) as f64)
                .fold(1.0, |a, b| a * b);
            members.values().map(growth).fold(own, |a, b| a * b)
        }
        Value::Array(items) => items.iter().map(growth).fold(1.0, |a, b| a * b),
        _ => 1.0,
    }
}

fn count_nodes(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(count_nodes).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(count_nodes).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
#[path = "tokenizer_test.rs"]
mod tests;
