//! Finds the word that the user may have meant.

/// Returns `; did you mean 'x'?` if a known word is similar.
pub fn suggestion<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    // Comparing long words takes time, and words of very different lengths are never similar.
    let max_distance = |name: &str| 1 + name.len() / 4;
    let similar = known
        .into_iter()
        .filter(|name| name.len().abs_diff(given.len()) <= 4 * max_distance(name))
        .map(|name| (strsim::damerau_levenshtein(given, name), name))
        .filter(|(distance, name)| *distance <= max_distance(name))
        .min();
    similar.map_or_else(String::new, |(_, name)| format!("; did you mean '{name}'?"))
}
