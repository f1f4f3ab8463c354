//! A table whose places are named by tokens; a later occupant of the same place has another token.

/// Names an occupant of a table. Fits into what epoll and the storage keep for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// Generations count round within 31 bits; the top bit is left to what else is waited for.
    const GENERATIONS: u32 = 1 << 31;

    fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation % Self::GENERATIONS) << 32 | u64::from(index))
    }

    /// As a number below 2⁶³.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The token of such a number.
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

/// The table.
#[derive(Debug)]
pub struct Places<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    occupant: Option<T>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    /// Takes in what `make` makes of its token.
    pub fn insert(&mut self, make: impl FnOnce(Token) -> T) -> (Token, &mut T) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, occupant: None });
            // Neither connections nor requests in flight reach 2³².
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[index as usize];
        let token = Token::new(index, place.generation);
        (token, place.occupant.insert(make(token)))
    }

    /// The occupant of that token, unless it is gone.
    #[inline]
    pub fn find(&mut self, token: Token) -> Option<&mut T> {
        let place = self.places.get_mut(token.index())?;
        if place.generation != token.generation() { None } else { place.occupant.as_mut() }
    }

    /// Lets an occupant go.
    #[inline]
    pub fn remove(&mut self, token: Token) -> Option<T> {
        let place = self.places.get_mut(token.index())?;
        if place.generation != token.generation() {
            return None;
        }
        let occupant = place.occupant.take()?;
        place.generation = (place.generation + 1) % Token::GENERATIONS;
        self.free.push(token.index() as u32);
        Some(occupant)
    }

    /// All occupants.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.occupant.as_ref())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// All tokens in use.
    pub fn tokens(&self) -> Vec<Token> {
        let used = self.places.iter().enumerate().filter(|(_, place)| place.occupant.is_some());
        used.map(|(index, place)| Token::new(index as u32, place.generation)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_finds_only_its_own_occupant() {
        let mut places = Places::default();
        let (first, _) = places.insert(|_| "first");
        let (second, _) = places.insert(|_| "second");
        assert_eq!(places.remove(first), Some("first"));
        assert_eq!(places.remove(first), None);
        let (third, _) = places.insert(|_| "third");
        assert_eq!(third.index(), first.index());
        assert!(places.find(first).is_none());
        assert_eq!(places.find(third).copied(), Some("third"));
        assert_eq!(Token::from_number(third.number()), third);
        assert_eq!((places.len(), places.tokens()), (2, vec![third, second]));
        assert_eq!(places.iter().collect::<Vec<_>>(), [&"third", &"second"]);
    }

    #[test]
    fn generations_leave_the_top_bit_alone() {
        assert!(Token::new(u32::MAX, u32::MAX).number() < 1 << 63);
    }
}
