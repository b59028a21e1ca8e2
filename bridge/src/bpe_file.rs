//! The `model` of a `tokenizer.json` when it is a BPE, read in one pass without a tree of values between.
//! What is not plainly such a model is an error here; the caller then asks the crate, whose word counts.

use crate::bpe::{Bpe, BpeOptions, Merge, MergeTable};
use crate::vocabulary::{Vocabulary, VocabularyBuilder};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

impl<'de> Deserialize<'de> for Bpe {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ModelVisitor)
    }
}

/// Puts the value of a member where it belongs, once.
fn set<'de, T: Deserialize<'de>, A: MapAccess<'de>>(place: &mut Option<T>, map: &mut A) -> Result<(), A::Error> {
    if place.is_some() {
        return Err(A::Error::custom("a member comes twice"));
    }
    *place = Some(map.next_value()?);
    Ok(())
}

struct ModelVisitor;

impl<'de> Visitor<'de> for ModelVisitor {
    type Value = Bpe;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a BPE model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bpe, A::Error> {
        let (mut kind, mut vocabulary, mut merges) = (None::<&str>, None::<Vocabulary>, None::<MergeTable>);
        let (mut dropout, mut unk_token) = (None::<Option<f32>>, None::<Option<String>>);
        let (mut prefix, mut suffix) = (None::<Option<String>>, None::<Option<String>>);
        let (mut fuse_unk, mut byte_fallback, mut ignore_merges) =
            (None::<Option<bool>>, None::<Option<bool>>, None::<Option<bool>>);
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                "type" => set(&mut kind, &mut map)?,
                "dropout" => set(&mut dropout, &mut map)?,
                "unk_token" => set(&mut unk_token, &mut map)?,
                "continuing_subword_prefix" if merges.is_none() => set(&mut prefix, &mut map)?,
                "end_of_word_suffix" => set(&mut suffix, &mut map)?,
                "fuse_unk" => set(&mut fuse_unk, &mut map)?,
                "byte_fallback" => set(&mut byte_fallback, &mut map)?,
                "ignore_merges" => set(&mut ignore_merges, &mut map)?,
                "vocab" if vocabulary.is_none() => vocabulary = Some(map.next_value_seed(VocabularySeed)?),
                "merges" if merges.is_none() => {
                    let vocabulary = vocabulary.as_ref().ok_or_else(|| A::Error::custom("merges before the vocab"))?;
                    let prefix_size = prefix.as_ref().and_then(Option::as_ref).map_or(0, String::len);
                    merges = Some(map.next_value_seed(MergesSeed(MergeReader::new(vocabulary, prefix_size)))?);
                }
                _ => return Err(A::Error::custom("an unknown member, or one out of order")),
            }
            if kind.is_some_and(|kind| kind != "BPE") || dropout.flatten().is_some() {
                return Err(A::Error::custom("another kind of model"));
            }
        }
        let (Some(_), Some(vocabulary), Some(merges)) = (kind, vocabulary, merges) else {
            return Err(A::Error::custom("an incomplete model"));
        };
        let options = BpeOptions {
            unk_token: unk_token.flatten(),
            continuing_subword_prefix: prefix.flatten(),
            end_of_word_suffix: suffix.flatten(),
            fuse_unk: fuse_unk.flatten().unwrap_or(false),
            byte_fallback: byte_fallback.flatten().unwrap_or(false),
            ignore_merges: ignore_merges.flatten().unwrap_or(false),
        };
        Ok(Bpe::new(vocabulary, merges, options))
    }
}

struct VocabularySeed;

impl<'de> DeserializeSeed<'de> for VocabularySeed {
    type Value = Vocabulary;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vocabulary, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for VocabularySeed {
    type Value = Vocabulary;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("tokens and their ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
        let mut builder = VocabularyBuilder::default();
        while map.next_key_seed(Text(|token: &str| builder.push_text(token)))?.is_some() {
            builder.push_id(map.next_value()?).map_err(A::Error::custom)?;
        }
        builder.build().map_err(A::Error::custom)
    }
}

/// Hands a string to a function, with no copy of its own.
struct Text<F>(F);

impl<'de, F: FnOnce(&str)> DeserializeSeed<'de> for Text<F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<F: FnOnce(&str)> Visitor<'_> for Text<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.0(text);
        Ok(())
    }
}

/// So many merges are looked up together, which hides most of the memory's latency.
const BATCH: usize = 64;
const UNKNOWN: &str = "a merge names an unknown token";

/// Where the two tokens of a merge are in a text.
struct Pair {
    start: usize,
    middle: usize,
    end: usize,
}

/// The merges read so far. A file has all of them in one form: `["a", "b"]` or `"a b"`.
struct MergeReader<'v> {
    vocabulary: &'v Vocabulary,
    prefix_size: usize,
    pairs: Option<bool>,
    merges: Vec<Merge>,
    /// What is not looked up yet.
    text: String,
    batch: Vec<Pair>,
    ids: Vec<Option<u32>>,
    /// The token that the last merge made.
    last: u32,
}

impl<'v> MergeReader<'v> {
    fn new(vocabulary: &'v Vocabulary, prefix_size: usize) -> Self {
        let (merges, text, batch, ids) = (Vec::new(), String::new(), Vec::with_capacity(BATCH), Vec::new());
        Self { vocabulary, prefix_size, pairs: None, merges, text, batch, ids, last: 0 }
    }

    /// Adds the merge of the tokens at the end of the text, from `start` and from `middle`.
    fn push(&mut self, start: usize, middle: usize) -> Result<(), &'static str> {
        self.batch.push(Pair { start, middle, end: self.text.len() });
        if self.batch.len() == BATCH {
            self.look_up()
        } else {
            Ok(())
        }
    }

    fn look_up(&mut self) -> Result<(), &'static str> {
        let vocabulary = self.vocabulary;
        let tokens = |pair: &Pair| [&self.text[pair.start..pair.middle], &self.text[pair.middle..pair.end]];
        vocabulary.ids_of(self.batch.iter().flat_map(tokens), &mut self.ids);
        let mut buffer = String::new();
        for (pair, ids) in self.batch.iter().zip(self.ids.chunks(2)) {
            let [left, right] = tokens(pair);
            let (left_id, right_id) = (ids[0].ok_or(UNKNOWN)?, ids[1].ok_or(UNKNOWN)?);
            let merged = if self.prefix_size == 0 {
                &self.text[pair.start..pair.end]
            } else {
                buffer.clear();
                buffer.extend([left, right.get(self.prefix_size..).ok_or("a token shorter than the prefix")?]);
                buffer.as_str()
            };
            // Files list merges by what they make, mostly in the vocabulary's order.
            let next = [self.last, self.last + 1].into_iter().find(|&id| vocabulary.text_of(id) == Some(merged));
            self.last = next.or_else(|| vocabulary.id_of(merged)).ok_or(UNKNOWN)?;
            let rank = u32::try_from(self.merges.len()).map_err(|_| "too many merges")?;
            self.merges.push(Merge { left: left_id, right: right_id, rank, id: self.last });
        }
        self.batch.clear();
        self.text.clear();
        Ok(())
    }

    fn check_form(&mut self, pairs: bool) -> Result<(), &'static str> {
        if *self.pairs.get_or_insert(pairs) == pairs {
            Ok(())
        } else {
            Err("merges of two forms")
        }
    }

    fn push_line(&mut self, line: &str) -> Result<(), &'static str> {
        self.check_form(false)?;
        if line.starts_with("#version") {
            return Ok(());
        }
        let (left, right) = line.split_once(' ').ok_or("a merge of one token")?;
        if right.contains(' ') {
            return Err("a merge of more than two tokens");
        }
        let start = self.text.len();
        self.text.extend([left, right]);
        self.push(start, start + left.len())
    }

    fn finish(mut self) -> Result<MergeTable, &'static str> {
        self.look_up()?;
        Ok(MergeTable::new(&self.merges))
    }
}

struct MergesSeed<'v>(MergeReader<'v>);

impl<'de> DeserializeSeed<'de> for MergesSeed<'_> {
    type Value = MergeTable;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<MergeTable, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MergesSeed<'_> {
    type Value = MergeTable;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<MergeTable, A::Error> {
        while seq.next_element_seed(MergeSeed(&mut self.0))?.is_some() {}
        self.0.finish().map_err(A::Error::custom)
    }
}

struct MergeSeed<'r, 'v>(&'r mut MergeReader<'v>);

impl<'de> DeserializeSeed<'de> for MergeSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for MergeSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a merge")
    }

    fn visit_str<E: Error>(self, line: &str) -> Result<(), E> {
        self.0.push_line(line).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let reader = self.0;
        reader.check_form(true).map_err(A::Error::custom)?;
        let start = reader.text.len();
        let left = seq.next_element_seed(Text(|token: &str| reader.text.push_str(token)))?;
        let middle = reader.text.len();
        let right = seq.next_element_seed(Text(|token: &str| reader.text.push_str(token)))?;
        if left.is_none() || right.is_none() || seq.next_element::<IgnoredAny>()?.is_some() {
            return Err(A::Error::custom("a merge that is not of two tokens"));
        }
        reader.push(start, middle).map_err(A::Error::custom)
    }
}
