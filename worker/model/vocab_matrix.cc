// Registers the rank's rows as one parameter; the registry derives padding from the logical shape.
#include "worker/model/vocab_matrix.h"

#include <utility>

namespace mt::model {

VocabMatrix::VocabMatrix(const GptConfig& config, Args args)
    : config_(config), args_(std::move(args)) {}

void VocabMatrix::Register(params::Registry* registry) {
  id_ = registry->Add({.name = args_.name,
                       .shape = {config_.vocab, config_.hidden},
                       .stored = {config_.local_vocab(), config_.hidden},
                       .begin = {first_row(), 0},
                       .region = args_.region,
                       .init = params::InitKind::kNormal,
                       .std = config_.init_std,
                       .decay = true,
                       .layer = args_.layer,
                       .copy = args_.copy});
}

void VocabMatrix::Bind(const params::ParamStore& store) {
  weight_ = store.Weight(id_);
  grad_ = store.Grad(id_);
}

}  // namespace mt::model
