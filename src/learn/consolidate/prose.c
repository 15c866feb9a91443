#include "learn/consolidate/prose.h"

#include "base/compat.h"

const char *const rvi_prose[] = {
    /* Charles Dickens, A Tale of Two Cities, 1859 */
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age "
    "of foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the "
    "season of Light, it was the season of Darkness, it was the spring of hope, it was the winter "
    "of despair, we had everything before us, we had nothing before us.",
    /* Lewis Carroll, Alice's Adventures in Wonderland, 1865 */
    "Alice was beginning to get very tired of sitting by her sister on the bank, and of having "
    "nothing to do: once or twice she had peeped into the book her sister was reading, but it had "
    "no pictures or conversations in it, and what is the use of a book, thought Alice, without "
    "pictures or conversations? So she was considering in her own mind, as well as she could, "
    "whether the pleasure of making a daisy-chain would be worth the trouble of getting up and "
    "picking the daisies.",
    /* Herman Melville, Moby-Dick, 1851 */
    "Call me Ishmael. Some years ago, never mind how long precisely, having little or no money in "
    "my purse, and nothing particular to interest me on shore, I thought I would sail about a "
    "little and see the watery part of the world. It is a way I have of driving off the spleen and "
    "regulating the circulation.",
    /* Mary Shelley, Frankenstein, 1818 */
    "You will rejoice to hear that no disaster has accompanied the commencement of an enterprise "
    "which you have regarded with such evil forebodings. I arrived here yesterday, and my first "
    "task is to assure my dear sister of my welfare and increasing confidence in the success of my "
    "undertaking. I am already far north of London, and as I walk in the streets, I feel a cold "
    "northern breeze play upon my cheeks, which braces my nerves and fills me with delight.",
    /* Arthur Conan Doyle, The Adventures of Sherlock Holmes, 1892 */
    "To Sherlock Holmes she is always the woman. I have seldom heard him mention her under any "
    "other name. In his eyes she eclipses and predominates the whole of her sex. It was not that "
    "he felt any emotion akin to love for her. All emotions, and that one particularly, were "
    "abhorrent to his cold, precise but admirably balanced mind.",
    /* Charles Darwin, The Voyage of the Beagle, 1839 */
    "After having been twice driven back by heavy southwestern gales, Her Majesty's ship, a "
    "ten-gun brig, under the command of Captain Fitz Roy, sailed from Devonport on the 27th of "
    "December. The object of the expedition was to complete the survey of Patagonia and Tierra del "
    "Fuego, to survey the shores of Chile, Peru, and of some islands in the Pacific.",
    /* H. G. Wells, The War of the Worlds, 1898 */
    "No one would have believed in the last years of the nineteenth century that this world was "
    "being watched keenly and closely by intelligences greater than man's and yet as mortal as his "
    "own; that as men busied themselves about their various concerns they were scrutinised and "
    "studied, perhaps almost as narrowly as a man with a microscope might scrutinise the transient "
    "creatures that swarm and multiply in a drop of water.",
    /* Henry David Thoreau, Walden, 1854 */
    "When I wrote the following pages, or rather the bulk of them, I lived alone, in the woods, a "
    "mile from any neighbor, in a house which I had built myself, on the shore of Walden Pond, in "
    "Concord, and earned my living by the labor of my hands only. I lived there two years and two "
    "months. At present I am a sojourner in civilized life again.",
};

const size_t rvi_n_prose = RVI_COUNT(rvi_prose);
