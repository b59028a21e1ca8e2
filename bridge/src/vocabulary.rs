//! The tokens of a vocabulary in a few flat arrays: a hash map of strings takes ten times as long to build and to free.

use ahash::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::hint::black_box;

const NONE: u32 = u32::MAX;
/// Ids may have holes; a vocabulary whose ids are spread more than this is left to the crate.
const MAX_ID_PER_TOKEN: usize = 8;

/// So many tokens are looked up together.
const BATCH: usize = 128;

const KEY_SIZE: usize = 12;
/// The last byte of the key of a text that is longer than `KEY_SIZE` - 1; else that byte is the text's length.
const LONG: u8 = 0xFF;

/// A short text itself, or the hash of a long one.
type Key = [u8; KEY_SIZE];

#[derive(Clone, Copy)]
struct Slot {
    key: Key,
    id: u32,
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    size: u32,
}

/// Token texts and ids, each once.
pub struct Vocabulary {
    texts: String,
    /// By id; a hole has no start.
    spans: Vec<Span>,
    count: usize,
    /// Open addressing with linear probing, at most half full. Most look-ups touch nothing but one slot.
    slots: Vec<Slot>,
    hasher: RandomState,
}

/// Collects the tokens of a file.
#[derive(Default)]
pub struct VocabularyBuilder {
    texts: String,
    ids_and_ends: Vec<(u32, u32)>,
}

impl VocabularyBuilder {
    /// The text of the next token; its id follows.
    pub fn push_text(&mut self, token: &str) {
        self.texts.push_str(token);
    }

    pub fn push_id(&mut self, id: u32) -> Result<(), &'static str> {
        let end = u32::try_from(self.texts.len()).map_err(|_| "4 GiB of tokens")?;
        self.ids_and_ends.push((id, end));
        Ok(())
    }

    /// Refuses a token or an id that comes twice, and ids far beyond the number of tokens.
    pub fn build(mut self) -> Result<Vocabulary, &'static str> {
        let count = self.ids_and_ends.len();
        let id_count = self.ids_and_ends.iter().max().map_or(0, |&(id, _)| id as usize + 1);
        if id_count > 1024 + count.saturating_mul(MAX_ID_PER_TOKEN) {
            return Err("ids far beyond the number of tokens");
        }
        self.texts.shrink_to_fit();
        let mut vocabulary = Vocabulary {
            texts: self.texts,
            spans: vec![Span { start: NONE, size: 0 }; id_count],
            count,
            slots: vec![Slot { key: [0; KEY_SIZE], id: NONE }; (count * 2).max(1).next_power_of_two()],
            hasher: RandomState::new(),
        };
        let mut start = 0;
        let mut keys = Vec::with_capacity(BATCH);
        for batch in self.ids_and_ends.chunks(BATCH) {
            for &(id, end) in batch {
                if vocabulary.spans[id as usize].start != NONE {
                    return Err("an id that comes twice");
                }
                let span = Span { start, size: end - start };
                keys.push(vocabulary.key(vocabulary.text(span)));
                vocabulary.spans[id as usize] = span;
                start = end;
            }
            vocabulary.touch(&keys);
            for ((key, hash), &(id, _)) in keys.drain(..).zip(batch) {
                let place = vocabulary.place(vocabulary.text(vocabulary.spans[id as usize]), &key, hash);
                if vocabulary.slots[place].id != NONE {
                    return Err("a token that comes twice");
                }
                vocabulary.slots[place] = Slot { key, id };
            }
        }
        Ok(vocabulary)
    }
}

impl Vocabulary {
    pub fn len(&self) -> usize {
        self.count
    }

    /// One more than the highest id.
    pub fn id_count(&self) -> usize {
        self.spans.len()
    }

    pub fn id_of(&self, token: &str) -> Option<u32> {
        let (key, hash) = self.key(token);
        let id = self.slots[self.place(token, &key, hash)].id;
        (id != NONE).then_some(id)
    }

    /// `id_of` for many tokens at a time.
    pub fn ids_of<'a>(&self, tokens: impl Iterator<Item = &'a str> + Clone, ids: &mut Vec<Option<u32>>) {
        let keys: Vec<(Key, usize)> = tokens.clone().map(|token| self.key(token)).collect();
        self.touch(&keys);
        ids.clear();
        ids.extend(keys.iter().zip(tokens).map(|((key, hash), token)| {
            let id = self.slots[self.place(token, key, *hash)].id;
            (id != NONE).then_some(id)
        }));
    }

    pub fn text_of(&self, id: u32) -> Option<&str> {
        let span = *self.spans.get(id as usize)?;
        (span.start != NONE).then(|| self.text(span))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        (0..self.spans.len() as u32).filter_map(|id| Some((self.text_of(id)?, id)))
    }

    /// Brings the slots of these keys into the processor's cache: reads that do not wait for each other.
    fn touch(&self, keys: &[(Key, usize)]) {
        let mask = self.slots.len() - 1;
        black_box(keys.iter().fold(0, |sum, (_, hash)| sum ^ self.slots[hash & mask].id));
    }

    fn text(&self, span: Span) -> &str {
        &self.texts[span.start as usize..(span.start + span.size) as usize]
    }

    fn key(&self, token: &str) -> (Key, usize) {
        let mut key = [0; KEY_SIZE];
        let mut state = self.hasher.build_hasher();
        if token.len() < KEY_SIZE {
            key[..token.len()].copy_from_slice(token.as_bytes());
            key[KEY_SIZE - 1] = token.len() as u8;
            state.write(&key);
            return (key, state.finish() as usize);
        }
        state.write(token.as_bytes());
        let hash = state.finish();
        key[..8].copy_from_slice(&hash.to_le_bytes());
        key[KEY_SIZE - 1] = LONG;
        (key, hash as usize)
    }

    /// The slot that holds `token`, or the empty one where it would be.
    fn place(&self, token: &str, key: &Key, hash: usize) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = hash & mask;
        loop {
            let slot = &self.slots[place];
            if slot.id == NONE {
                return place;
            }
            if slot.key == *key && (key[KEY_SIZE - 1] != LONG || self.text_of(slot.id) == Some(token)) {
                return place;
            }
            place = (place + 1) & mask;
        }
    }
}
