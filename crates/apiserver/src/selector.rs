//! Label and field selectors: the query syntax of `?labelSelector=` and `?fieldSelector=`, and the
//! `LabelSelector` of a spec. Error texts are those of apimachinery's `labels` and `fields`.

mod field;

use std::collections::BTreeSet;

use serde_json::Value;

use super::validate::names;
pub use field::FieldSelector;

/// A conjunction of requirements on labels. The empty selector matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(BTreeSet<String>),
    /// Also true of objects without the label.
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    /// Parses the query syntax: `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`.
    ///
    /// # Errors
    /// The error says what was found and what was expected instead, as kubectl prints it.
    pub fn parse(text: &str) -> Result<LabelSelector, String> {
        let mut parser = Parser { tokens: tokens(text), position: 0 };
        let mut requirements = Vec::new();
        loop {
            match parser.peek() {
                Token::Word(_) | Token::Symbol("!") => {}
                Token::End => return Ok(LabelSelector { requirements }),
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.text()
                    ));
                }
            }
            let requirement =
                parser.requirement().map_err(|error| format!("unable to parse requirement: {error}"))?;
            requirements.push(requirement);
            match parser.next() {
                Token::End => return Ok(LabelSelector { requirements }),
                Token::Symbol(",") => match parser.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
                },
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    /// Reads a `metav1.LabelSelector`. An absent selector (`null`) matches nothing upstream; callers
    /// that can meet one must ask first, because here it is an error.
    ///
    /// # Errors
    /// A key, value or operator that the API does not allow.
    pub fn from_spec(selector: &Value) -> Result<LabelSelector, String> {
        let Some(selector) = selector.as_object() else {
            return Err("the selector is not an object".to_owned());
        };
        let mut requirements = Vec::new();
        match selector.get("matchLabels") {
            None | Some(Value::Null) => {}
            Some(Value::Object(labels)) => {
                for (key, value) in labels {
                    let value =
                        value.as_str().ok_or_else(|| format!("the value of {key:?} is not a string"))?;
                    check_key(key)?;
                    check_value(key, 0, value)?;
                    let test = Test::In([value.to_owned()].into());
                    requirements.push(Requirement { key: key.clone(), test });
                }
            }
            Some(_) => return Err("matchLabels is not an object".to_owned()),
        }
        match selector.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(Value::Array(expressions)) => {
                for expression in expressions {
                    requirements.push(expression_requirement(expression)?);
                }
            }
            Some(_) => return Err("matchExpressions is not a list".to_owned()),
        }
        Ok(LabelSelector { requirements })
    }

    /// Whether there is no requirement, so that everything matches.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object with these labels (`metadata.labels`, which may be null) is selected.
    pub fn matches(&self, labels: &Value) -> bool {
        self.requirements.iter().all(|Requirement { key, test }| {
            let value = labels.get(key).and_then(Value::as_str);
            let number = || value.and_then(|value| value.parse::<i64>().ok());
            match test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
                Test::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
                Test::LessThan(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

/// The query syntax again, ordered by key: what `kubectl get -o wide` shows under SELECTOR.
impl std::fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut ordered: Vec<&Requirement> = self.requirements.iter().collect();
        ordered.sort_by_key(|requirement| &requirement.key);
        for (position, Requirement { key, test }) in ordered.into_iter().enumerate() {
            if position > 0 {
                f.write_str(",")?;
            }
            let list = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
            match test {
                Test::In(values) if values.len() == 1 => write!(f, "{key}={}", list(values))?,
                Test::In(values) => write!(f, "{key} in ({})", list(values))?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", list(values))?,
                Test::Exists => write!(f, "{key}")?,
                Test::DoesNotExist => write!(f, "!{key}")?,
                Test::GreaterThan(bound) => write!(f, "{key}>{bound}")?,
                Test::LessThan(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn expression_requirement(expression: &Value) -> Result<Requirement, String> {
    let key = expression["key"].as_str().unwrap_or_default();
    check_key(key)?;
    let values: BTreeSet<String> = match &expression["values"] {
        Value::Null => BTreeSet::new(),
        Value::Array(values) => values
            .iter()
            .map(|value| value.as_str().map(str::to_owned).ok_or("a value is not a string"))
            .collect::<Result<_, _>>()?,
        _ => return Err("values is not a list".to_owned()),
    };
    for (index, value) in values.iter().enumerate() {
        check_value(key, index, value)?;
    }
    let operator = expression["operator"].as_str().unwrap_or_default();
    let test = match (operator, values.is_empty()) {
        ("In", false) => Test::In(values),
        ("NotIn", false) => Test::NotIn(values),
        ("Exists", true) => Test::Exists,
        ("DoesNotExist", true) => Test::DoesNotExist,
        ("In" | "NotIn", true) => {
            return Err(
                "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty".into()
            );
        }
        ("Exists" | "DoesNotExist", false) => {
            return Err(
                "values: Invalid value: values set must be empty for exists and does not exist".into()
            );
        }
        _ => return Err(format!("{operator:?} is not a valid label selector operator")),
    };
    Ok(Requirement { key: key.to_owned(), test })
}

fn check_key(key: &str) -> Result<(), String> {
    match names::label_key(key) {
        errors if errors.is_empty() => Ok(()),
        errors => Err(format!("<nil>: Invalid value: {key:?}: {}", errors.join("; "))),
    }
}

fn check_value(key: &str, index: usize, value: &str) -> Result<(), String> {
    match names::label_value(value) {
        errors if errors.is_empty() => Ok(()),
        errors => Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {}", errors.join("; "))),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'static str),
    End,
}

impl<'a> Token<'a> {
    fn text(&self) -> &'a str {
        match *self {
            Token::Word(word) => word,
            Token::Symbol(symbol) => symbol,
            Token::End => "",
        }
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    // Longest first, so that `==` is not read as two `=`.
    const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            tokens.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let is_end = |c: char| c.is_whitespace() || "=!(),><".contains(c);
            let (word, after) = rest.split_at(rest.find(is_end).unwrap_or(rest.len()));
            tokens.push(Token::Word(word));
            rest = after;
        }
        rest = rest.trim_start();
    }
    tokens
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    position: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.next();
        }
        let key = match self.next() {
            Token::Word(word) => word,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check_key(key)?;
        let requirement = |test| Ok(Requirement { key: key.to_owned(), test });
        if negated {
            return requirement(Test::DoesNotExist);
        }
        match self.peek() {
            Token::End | Token::Symbol(",") => return requirement(Test::Exists),
            _ => {}
        }
        match self.next() {
            Token::Symbol("=" | "==") => requirement(Test::In([self.value(key)?].into())),
            Token::Symbol("!=") => requirement(Test::NotIn([self.value(key)?].into())),
            Token::Symbol(">") => requirement(Test::GreaterThan(self.number(key)?)),
            Token::Symbol("<") => requirement(Test::LessThan(self.number(key)?)),
            Token::Word("in") => requirement(Test::In(self.values(key)?)),
            Token::Word("notin") => requirement(Test::NotIn(self.values(key)?)),
            other => Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text())),
        }
    }

    /// The value after `=`; nothing stands for the empty string, as in `a=,b=c`.
    fn value(&mut self, key: &str) -> Result<String, String> {
        let value = match self.peek() {
            Token::End | Token::Symbol(",") => String::new(),
            Token::Word(word) => {
                self.next();
                word.to_owned()
            }
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check_value(key, 0, &value)?;
        Ok(value)
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let value = self.value(key)?;
        value.parse().map_err(|_| {
            format!(
                "values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    /// The parenthesised set after `in`; an empty place between commas is the empty string.
    fn values(&mut self, key: &str) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Token::Word(word) => {
                    self.next();
                    word
                }
                Token::Symbol("," | ")") => "",
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            };
            check_value(key, values.len(), value)?;
            values.insert(value.to_owned());
            match self.next() {
                Token::Symbol(")") => return Ok(values),
                Token::Symbol(",") => {}
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(selector: &str, labels: Value, expected: bool) {
        assert_eq!(LabelSelector::parse(selector).unwrap().matches(&labels), expected, "{selector} {labels}");
    }

    #[test]
    fn a_selector_is_a_conjunction() {
        let labels = || json!({"app": "web", "tier": "front", "n": "5"});
        check("", labels(), true);
        check("app=web,tier==front", labels(), true);
        check("app=web,tier=back", labels(), false);
        check(" app in ( web , api ) , tier notin (back) , n , !gone ", labels(), true);
        check("app", Value::Null, false);
        check("!app", Value::Null, true);
        check("app!=web", labels(), false);
        check("n>4,n<6", labels(), true);
        check("n>5", labels(), false);
        check("app>5", labels(), false);
    }

    #[test]
    fn negative_requirements_hold_for_objects_without_the_label() {
        check("app!=web", json!({}), true);
        check("app notin (web)", Value::Null, true);
    }

    #[test]
    fn an_absent_value_is_the_empty_string() {
        check("app=", json!({"app": ""}), true);
        check("app=,tier=x", json!({"app": "", "tier": "x"}), true);
        check("app in (,a)", json!({"app": ""}), true);
        check("app=", json!({}), false);
    }

    #[track_caller]
    fn refuse(selector: &str, expected: &str) {
        let error = LabelSelector::parse(selector).unwrap_err();
        assert!(error.starts_with(expected), "{selector}: {error}");
    }

    #[test]
    fn an_invalid_selector_is_refused_with_the_expected_token() {
        refuse(",", "found ',', expected: !, identifier, or 'end of string'");
        refuse("a,", "found '', expected: identifier after ','");
        refuse("a=b c", "found 'c', expected: ',' or 'end of string'");
        refuse("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
        refuse("a in b", "unable to parse requirement: found 'b' expected: '('");
        refuse("a in (b", "unable to parse requirement: found '', expected: ',' or ')'");
        refuse("!", "unable to parse requirement: found '', expected: identifier");
        refuse("a>x", "unable to parse requirement: values[0][a]: Invalid value: \"x\"");
        refuse("-a=b", "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist");
        refuse(
            "a=/",
            "unable to parse requirement: values[0][a]: Invalid value: \"/\": a valid label must be",
        );
    }

    #[test]
    fn the_selector_of_a_spec_means_the_same() {
        let selector = LabelSelector::from_spec(&json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["b", "a"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }))
        .unwrap();
        assert_eq!(selector.to_string(), "app=web,!old,tier in (a,b)");
        assert!(selector.matches(&json!({"app": "web", "tier": "a"})));
        assert!(!selector.matches(&json!({"app": "web", "tier": "a", "old": ""})));
        assert!(LabelSelector::from_spec(&json!({})).unwrap().matches(&Value::Null));
        for bad in [
            json!(null),
            json!({"matchLabels": {"a": 1}}),
            json!({"matchLabels": {"a b": "c"}}),
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}),
        ] {
            assert!(LabelSelector::from_spec(&bad).is_err(), "{bad}");
        }
    }
}
