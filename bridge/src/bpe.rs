//! Byte pair encoding over flat tables. Ids, offsets and errors are those of the crate's model without dropout.

use crate::vocabulary::Vocabulary;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tokenizers::models::bpe::{BpeTrainer, Error};
use tokenizers::models::TrainerWrapper;
use tokenizers::{Model, Token};

const NONE: u32 = u32::MAX;
/// So many merges enter the table together.
const BATCH: usize = 128;

/// The members of a BPE model beside its vocabulary and merges.
#[derive(Default)]
pub struct BpeOptions {
    pub unk_token: Option<String>,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    pub fuse_unk: bool,
    pub byte_fallback: bool,
    pub ignore_merges: bool,
}

/// Two ids next to each other become `id`; the merge with the lowest rank goes first.
#[derive(Clone, Copy)]
pub struct Merge {
    pub left: u32,
    pub right: u32,
    pub rank: u32,
    pub id: u32,
}

/// Merges by their pair: open addressing with linear probing, at most two thirds full.
pub struct MergeTable {
    slots: Vec<Merge>,
    /// Some bits of each slot's hash, or EMPTY. Most pairs of a text have no merge, which these few bytes tell.
    tags: Vec<u8>,
    hasher: ahash::RandomState,
}

const EMPTY: u8 = 0;

impl MergeTable {
    /// Of two merges of one pair the later counts.
    pub fn new(merges: &[Merge]) -> Self {
        let size = (merges.len() * 3 / 2 + 1).next_power_of_two();
        let slots = vec![Merge { left: 0, right: 0, rank: 0, id: 0 }; size];
        let mut table = Self { slots, tags: vec![EMPTY; size], hasher: ahash::RandomState::new() };
        let mut hashes = Vec::with_capacity(BATCH);
        for batch in merges.chunks(BATCH) {
            hashes.extend(batch.iter().map(|merge| table.hash(merge.left, merge.right)));
            // Reads that do not wait for each other bring the slots into the processor's cache.
            let touch = |hash: &u64| table.slots[*hash as usize & (size - 1)].rank;
            black_box(hashes.iter().fold(0, |sum, hash| sum ^ touch(hash)));
            for (merge, hash) in batch.iter().zip(hashes.drain(..)) {
                let place = table.place(merge.left, merge.right, hash);
                table.slots[place] = *merge;
                table.tags[place] = Self::tag(hash);
            }
        }
        table
    }

    fn get(&self, left: u32, right: u32) -> Option<Merge> {
        let place = self.place(left, right, self.hash(left, right));
        (self.tags[place] != EMPTY).then(|| self.slots[place])
    }

    fn hash(&self, left: u32, right: u32) -> u64 {
        self.hasher.hash_one(u64::from(left) << 32 | u64::from(right))
    }

    fn tag(hash: u64) -> u8 {
        (hash >> 56) as u8 | 1
    }

    /// The slot that holds this pair, or the empty one where it would be.
    fn place(&self, left: u32, right: u32, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let tag = self.tags[place];
            if tag == EMPTY {
                return place;
            }
            if tag == Self::tag(hash) {
                let slot = &self.slots[place];
                if slot.left == left && slot.right == right {
                    return place;
                }
            }
            place = (place + 1) & mask;
        }
    }
}

pub struct Bpe {
    vocabulary: Vocabulary,
    merges: MergeTable,
    options: BpeOptions,
    unk_id: Option<u32>,
    /// The ids of "<0x00>" to "<0xFF>".
    byte_ids: Vec<Option<u32>>,
    /// By id, whether the token's text as a word is known to merge into that one token. So are most words of a text.
    whole: Vec<AtomicBool>,
}

/// A piece of a word: a list, linked both ways, of which merges take pieces out. A removed piece has no bytes.
#[derive(Clone, Copy)]
struct Piece {
    id: u32,
    bytes: u32,
    previous: u32,
    next: u32,
}

impl Bpe {
    pub fn new(vocabulary: Vocabulary, merges: MergeTable, options: BpeOptions) -> Self {
        let unk_id = options.unk_token.as_deref().and_then(|token| vocabulary.id_of(token));
        let byte_ids = (0..=255u8).map(|byte| vocabulary.id_of(&format!("<0x{byte:02X}>"))).collect();
        let whole = (0..vocabulary.id_count()).map(|_| AtomicBool::new(false)).collect();
        Self { vocabulary, merges, options, unk_id, byte_ids, whole }
    }

    /// The id of one character of a word, with the prefix and suffix that its place asks for; else those bytes.
    fn lookup<'a>(&self, character: &'a str, first: bool, last: bool, buffer: &'a mut String) -> Result<u32, &'a [u8]> {
        let prefix = self.options.continuing_subword_prefix.as_deref().filter(|_| !first).unwrap_or("");
        let suffix = self.options.end_of_word_suffix.as_deref().filter(|_| last).unwrap_or("");
        let text = if prefix.is_empty() && suffix.is_empty() {
            character
        } else {
            buffer.clear();
            buffer.extend([prefix, character, suffix]);
            buffer.as_str()
        };
        self.vocabulary.id_of(text).ok_or(text.as_bytes())
    }

    /// A word's characters as pieces. An unknown character waits for the next known one, so that it may fuse with
    /// unknown ones after it; characters that fall back to bytes do not end that wait.
    fn split(&self, word: &str) -> tokenizers::Result<Vec<Piece>> {
        let mut pieces: Vec<Piece> = Vec::with_capacity(word.len());
        let mut add = |id: u32, bytes: u32| {
            let index = pieces.len() as u32;
            pieces.push(Piece { id, bytes, previous: index.wrapping_sub(1), next: index + 1 });
        };
        let mut unknown: Option<(u32, u32)> = None;
        let mut buffer = String::new();
        for (start, character) in word.char_indices() {
            let end = start + character.len_utf8();
            let bytes = (end - start) as u32;
            match self.lookup(&word[start..end], start == 0, end == word.len(), &mut buffer) {
                Ok(id) => {
                    if let Some((unk_id, unk_bytes)) = unknown.take() {
                        add(unk_id, unk_bytes);
                    }
                    add(id, bytes);
                }
                Err(text) => {
                    let known = |&byte: &u8| self.byte_ids[usize::from(byte)].is_some();
                    if self.options.byte_fallback && text.iter().all(known) {
                        text.iter().filter_map(|&byte| self.byte_ids[usize::from(byte)]).for_each(|id| add(id, 1));
                        continue;
                    }
                    let Some(unk_token) = &self.options.unk_token else { continue };
                    unknown = match unknown {
                        Some((unk_id, unk_bytes)) if self.options.fuse_unk => Some((unk_id, unk_bytes + bytes)),
                        waiting => {
                            if let Some((unk_id, unk_bytes)) = waiting {
                                add(unk_id, unk_bytes);
                            }
                            let unk_id = self.unk_id.ok_or_else(|| Error::UnkTokenOutOfVocabulary(unk_token.clone()))?;
                            Some((unk_id, bytes))
                        }
                    };
                }
            }
        }
        if let Some((unk_id, unk_bytes)) = unknown {
            add(unk_id, unk_bytes);
        }
        if let Some(last) = pieces.last_mut() {
            last.next = NONE;
        }
        Ok(pieces)
    }

    /// Applies the merge of the lowest rank, the leftmost first, as long as there is one.
    fn merge(&self, pieces: &mut Vec<Piece>) {
        // Rank and place in one number, which orders them; and the id.
        let found = |left: &Piece, right: &Piece, place: u32| {
            let merge = self.merges.get(left.id, right.id)?;
            Some(Reverse((u64::from(merge.rank) << 32 | u64::from(place), merge.id)))
        };
        let first = pieces.windows(2).zip(0..).filter_map(|(pair, place)| found(&pair[0], &pair[1], place));
        let mut queue: BinaryHeap<Reverse<(u64, u32)>> = first.collect::<Vec<_>>().into();
        while let Some(Reverse((order, id))) = queue.pop() {
            let place = order as u32;
            let left = pieces[place as usize];
            if left.bytes == 0 || left.next == NONE {
                continue;
            }
            let right = pieces[left.next as usize];
            // What was queued may be gone by now.
            if self.merges.get(left.id, right.id).is_none_or(|merge| merge.id != id) {
                continue;
            }
            pieces[left.next as usize].bytes = 0;
            let merged = Piece { id, bytes: left.bytes + right.bytes, next: right.next, ..left };
            pieces[place as usize] = merged;
            if merged.previous != NONE {
                queue.extend(found(&pieces[merged.previous as usize], &merged, merged.previous));
            }
            if merged.next != NONE {
                pieces[merged.next as usize].previous = place;
                queue.extend(found(&merged, &pieces[merged.next as usize], place));
            }
        }
        pieces.retain(|piece| piece.bytes != 0);
    }
}

impl Model for Bpe {
    type Trainer = TrainerWrapper;

    fn tokenize(&self, word: &str) -> tokenizers::Result<Vec<Token>> {
        if word.len() >= NONE as usize {
            return Err("a text of 4 GiB or more".into());
        }
        let word_id = self.vocabulary.id_of(word);
        if let Some(id) = word_id {
            if self.options.ignore_merges || self.whole[id as usize].load(Ordering::Relaxed) {
                return Ok(vec![Token::new(id, word.to_string(), (0, word.len()))]);
            }
        }
        let mut pieces = self.split(word)?;
        self.merge(&mut pieces);
        if let (Some(id), [piece]) = (word_id, pieces.as_slice()) {
            if piece.id == id && piece.bytes as usize == word.len() {
                self.whole[id as usize].store(true, Ordering::Relaxed);
            }
        }
        let mut end = 0;
        let tokens = pieces.iter().map(|piece| {
            let start = end;
            end += piece.bytes as usize;
            Token::new(piece.id, self.id_to_token(piece.id).unwrap_or_default(), (start, end))
        });
        Ok(tokens.collect())
    }

    fn token_to_id(&self, token: &str) -> Option<u32> {
        self.vocabulary.id_of(token)
    }

    fn id_to_token(&self, id: u32) -> Option<String> {
        self.vocabulary.text_of(id).map(str::to_string)
    }

    fn get_vocab(&self) -> HashMap<String, u32> {
        self.vocabulary.iter().map(|(token, id)| (token.to_string(), id)).collect()
    }

    fn get_vocab_size(&self) -> usize {
        self.vocabulary.len()
    }

    fn save(&self, _folder: &Path, _name: Option<&str>) -> tokenizers::Result<Vec<PathBuf>> {
        Err("this model is for reading".into())
    }

    fn get_trainer(&self) -> TrainerWrapper {
        BpeTrainer::default().into()
    }
}
