//! A slab: a table that assigns a token to each value. When a slot is reused, the new value gets another token.

/// The key of a value in a slab. It fits into the user data of an epoll event and of a storage request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// Generations wrap around at 31 bits, because the top bit of a number marks event numbers that are not tokens.
    const GENERATIONS: u32 = 1 << 31;

    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation % Self::GENERATIONS) << 32 | u64::from(index))
    }

    /// The token as a number below 2⁶³.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The token of a number that [`Token::number`] returned.
    pub fn from_number(number: u64) -> Self {
        Self(number)
    }

    fn index(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The slab: slots with values, and a list of free slots.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds the value that `make` returns for its token.
    pub fn insert(&mut self, make: impl FnOnce(Token) -> T) -> (Token, &mut T) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            // The number of connections or requests in flight never reaches 2³².
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        let token = Token::new(index, slot.generation);
        (token, slot.value.insert(make(token)))
    }

    /// The value of a token; none if it was removed.
    #[inline]
    pub fn find(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.index())?;
        if slot.generation != token.generation() { None } else { slot.value.as_mut() }
    }

    /// Removes the value of a token and returns it.
    #[inline]
    pub fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.index())?;
        if slot.generation != token.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) % Token::GENERATIONS;
        self.free.push(token.index() as u32);
        Some(value)
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }

    /// The tokens of all values.
    pub fn tokens(&self) -> Vec<Token> {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        used.map(|(index, slot)| Token::new(index as u32, slot.generation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_finds_only_its_own_value() {
        let mut slab = Slab::default();
        let (first, _) = slab.insert(|_| "first");
        let (second, _) = slab.insert(|_| "second");
        assert_eq!(slab.remove(first), Some("first"));
        assert_eq!(slab.remove(first), None);
        let (third, _) = slab.insert(|_| "third");
        assert_eq!(third.index(), first.index());
        assert!(slab.find(first).is_none());
        assert_eq!(slab.find(third).copied(), Some("third"));
        assert_eq!(Token::from_number(third.number()), third);
        assert_eq!(slab.tokens(), [third, second]);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [&"third", &"second"]);
    }

    #[test]
    fn generations_do_not_use_the_top_bit() {
        assert!(Token::new(u32::MAX, u32::MAX).number() < 1 << 63);
    }
}
