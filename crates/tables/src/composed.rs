//! Letters with marks, which Unicode writes as one or as two: a name is the same in both forms.

use std::borrow::Cow;

/// Marks, each with letters that it stands on, and what both are as one: Latin, Greek, Cyrillic and Japanese, as Unicode's tables have them.
const COMPOSED: [(char, &str); 29] = [
    ('\u{300}', "AÀEÈIÌOÒUÙaàeèiìoòuùÜǛüǜNǸnǹЕЀИЍеѐиѝĒḔēḕŌṐōṑWẀwẁÂẦâầĂẰăằÊỀêềÔỒôồƠỜơờƯỪưừYỲyỳ"),
    ('\u{301}', "AÁEÉIÍOÓUÚYÝaáeéiíoóuúyýCĆcćLĹlĺNŃnńRŔrŕSŚsśZŹzźÜǗüǘGǴgǵÅǺåǻÆǼæǽØǾøǿΑΆΕΈΗΉΙΊΟΌΥΎΩΏϊΐαάεέηήιί"),
    ('\u{301}', "ϋΰοόυύωώϒϓГЃКЌгѓкќÇḈçḉĒḖēḗÏḮïḯKḰkḱMḾmḿÕṌõṍŌṒōṓPṔpṕŨṸũṹWẂwẃÂẤâấĂẮăắÊẾêếÔỐôốƠỚơớƯỨưứ"),
    ('\u{302}', "AÂEÊIÎOÔUÛaâeêiîoôuûCĈcĉGĜgĝHĤhĥJĴjĵSŜsŝWŴwŵYŶyŷZẐzẑẠẬạậẸỆẹệỌỘọộ"),
    ('\u{303}', "AÃNÑOÕaãnñoõIĨiĩUŨuũVṼvṽÂẪâẫĂẴăẵEẼeẽÊỄêễÔỖôỗƠỠơỡƯỮưữYỸyỹ"),
    ('\u{304}', "AĀaāEĒeēIĪiīOŌoōUŪuūÜǕüǖÄǞäǟȦǠȧǡÆǢæǣǪǬǫǭÖȪöȫÕȬõȭȮȰȯȱYȲyȳИӢиӣУӮуӯGḠgḡḶḸḷḹṚṜṛṝ"),
    ('\u{306}', "AĂaăEĔeĕGĞgğIĬiĭOŎoŏUŬuŭУЎИЙийуўЖӁжӂАӐаӑЕӖеӗȨḜȩḝẠẶạặ"),
    ('\u{307}', "CĊcċEĖeėGĠgġIİZŻzżAȦaȧOȮoȯBḂbḃDḊdḋFḞfḟHḢhḣMṀmṁNṄnṅPṖpṗRṘrṙSṠsṡŚṤśṥŠṦšṧṢṨṣṩTṪtṫWẆwẇXẊxẋYẎyẏſẛ"),
    ('\u{308}', "AÄEËIÏOÖUÜaäeëiïoöuüyÿYŸΙΪΥΫιϊυϋϒϔЕЁІЇеёіїАӒаӓӘӚәӛЖӜжӝЗӞзӟИӤиӥОӦоӧӨӪөӫЭӬэӭУӰуӱЧӴчӵЫӸыӹHḦhḧÕṎ"),
    ('\u{308}', "õṏŪṺūṻWẄwẅXẌxẍtẗ"),
    ('\u{309}', "AẢaảÂẨâẩĂẲăẳEẺeẻÊỂêểIỈiỉOỎoỏÔỔôổƠỞơởUỦuủƯỬưửYỶyỷ"),
    ('\u{30a}', "AÅaåUŮuůwẘyẙ"),
    ('\u{30b}', "OŐoőUŰuűУӲуӳ"),
    ('\u{30c}', "CČcčDĎdďEĚeěLĽlľNŇnňRŘrřSŠsšTŤtťZŽzžAǍaǎIǏiǐOǑoǒUǓuǔÜǙüǚGǦgǧKǨkǩƷǮʒǯjǰHȞhȟ"),
    ('\u{30f}', "AȀaȁEȄeȅIȈiȉOȌoȍRȐrȑUȔuȕѴѶѵѷ"),
    ('\u{311}', "AȂaȃEȆeȇIȊiȋOȎoȏRȒrȓUȖuȗ"),
    ('\u{31b}', "OƠoơUƯuư"),
    ('\u{323}', "BḄbḅDḌdḍHḤhḥKḲkḳLḶlḷMṂmṃNṆnṇRṚrṛSṢsṣTṬtṭVṾvṿWẈwẉZẒzẓAẠaạEẸeẹIỊiịOỌoọƠỢơợUỤuụƯỰưựYỴyỵ"),
    ('\u{324}', "UṲuṳ"),
    ('\u{325}', "AḀaḁ"),
    ('\u{326}', "SȘsșTȚtț"),
    ('\u{327}', "CÇcçGĢgģKĶkķLĻlļNŅnņRŖrŗSŞsşTŢtţEȨeȩDḐdḑHḨhḩ"),
    ('\u{328}', "AĄaąEĘeęIĮiįUŲuųOǪoǫ"),
    ('\u{32d}', "DḒdḓEḘeḙLḼlḽNṊnṋTṰtṱUṶuṷ"),
    ('\u{32e}', "HḪhḫ"),
    ('\u{330}', "EḚeḛIḬiḭUṴuṵ"),
    ('\u{331}', "BḆbḇDḎdḏKḴkḵLḺlḻNṈnṉRṞrṟTṮtṯZẔzẕhẖ"),
    (
        '\u{3099}',
        "かがきぎくぐけげこごさざしじすずせぜそぞただちぢつづてでとどはばひびふぶへべほぼうゔカガキギクグケゲコゴサザシジスズセゼソゾタダチヂツヅテデトドハバヒビフブヘベホボウヴワヷヰヸヱヹヲヺ",
    ),
    ('\u{309a}', "はぱひぴふぷへぺほぽハパヒピフプヘペホポ"),
];

/// A text with each mark on its letter, as most programs write it (NFC).
pub(super) fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Signs that are letters.
        let c = match c {
            '\u{2126}' => 'Ω',
            '\u{212a}' => 'K',
            '\u{212b}' => 'Å',
            c => c,
        };
        let both = out.chars().next_back().and_then(|before| joined(before, c));
        if both.is_some() {
            out.pop();
        }
        out.push(both.unwrap_or(c));
    }
    Cow::Owned(out)
}

/// A letter and what follows it as one, if there is such a letter.
fn joined(letter: char, next: char) -> Option<char> {
    let (first, second) = (u32::from(letter), u32::from(next));
    match (first, second) {
        // Syllables of Korean are counted through: 19 first sounds, 21 vowels, 27 last sounds or none.
        (0x1100..0x1113, 0x1161..0x1176) => char::from_u32(0xac00 + ((first - 0x1100) * 21 + second - 0x1161) * 28),
        (0xac00..0xd7a4, 0x11a8..0x11c3) if (first - 0xac00).is_multiple_of(28) => {
            char::from_u32(first + second - 0x11a7)
        }
        _ => {
            let letters = COMPOSED.iter().filter(|(mark, _)| *mark == next).flat_map(|(_, letters)| letters.chars());
            letters
                .clone()
                .step_by(2)
                .zip(letters.skip(1).step_by(2))
                .find(|(alone, _)| *alone == letter)
                .map(|(_, both)| both)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_name_are_one() {
        for [apart, whole] in [
            ["vitesse_re\u{301}elle", "vitesse_r\u{e9}elle"],
            ["ho\u{308}he", "h\u{f6}he"],
            ["e\u{302}\u{301}", "\u{1ebf}"],
            ["\u{438}\u{306}", "\u{439}"],
            ["\u{3c9}\u{301}", "\u{3ce}"],
            ["\u{304b}\u{3099}", "\u{304c}"],
            ["\u{1112}\u{1161}\u{11ab}", "\u{d55c}"],
            ["\u{212b} / \u{2126}", "\u{c5} / \u{3a9}"],
            // There is no such letter as one.
            ["x\u{304}", "x\u{304}"],
            ["\u{301}e", "\u{301}e"],
            ["plain", "plain"],
        ] {
            assert_eq!(composed(apart), whole);
            assert_eq!(composed(whole), whole);
        }
        assert!(composed("e\u{300}") != composed("\u{e9}") && composed("e\u{301}") != "e");
    }
}
